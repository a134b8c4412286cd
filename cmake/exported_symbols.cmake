# Writes OUT, a linker version script, with the symbols of LIBRARY whose outermost name in namespace tenon occurs as a
# word in the code of HEADERS, except those of a namespace in HIDDEN. Run as a script:
#   cmake -DNM=nm -DLIBRARY=libtenon.so "-DHEADERS=a.h;b.h" "-DHIDDEN=cpu;cuda" -DOUT=door.map -P exported_symbols.cmake
foreach(header ${HEADERS})
  file(READ ${header} code)
  string(REGEX REPLACE "//[^\n]*" "" code "${code}")
  string(REGEX MATCHALL "[A-Za-z_][A-Za-z_0-9]*" words "${code}")
  foreach(word ${words})
    set(word_${word} TRUE)
  endforeach()
endforeach()
foreach(name ${HIDDEN})
  set(word_${name} FALSE)
endforeach()

execute_process(COMMAND ${NM} --dynamic --defined-only --format=posix ${LIBRARY} OUTPUT_VARIABLE listed
                COMMAND_ERROR_IS_FATAL ANY)
# Functions and data; what belongs to a class or object: its vtable, type info, name, guard, thunks; objects in
# functions.
set(nested "_Z(T[VTIS]|Th[n0-9]*_|Tv[n0-9]*_n?[0-9]*_|GV)?Z?N[VKRO]*5tenon")
string(REGEX MATCHALL "${nested}[0-9a-z][^ ]*" symbols "${listed}")
set(shown "")
set(count 0)
foreach(symbol ${symbols})
  set(name "")
  if(symbol MATCHES "^${nested}([0-9]+)(.*)")
    string(SUBSTRING "${CMAKE_MATCH_3}" 0 ${CMAKE_MATCH_2} name)
  endif()
  if(name STREQUAL "" OR word_${name})  # operators have no name
    string(APPEND shown "    ${symbol};\n")
    math(EXPR count "${count} + 1")
  endif()
endforeach()
if(count EQUAL 0)
  message(FATAL_ERROR "${LIBRARY} has no symbol of a public header")
endif()
file(WRITE ${OUT} "{\n  global:\n${shown}  local: *;\n};\n")
