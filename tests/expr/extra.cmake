# A node that lacks a member its family needs must not build: each file of compile_fail/ is given to the compiler as it is,
# where it must pass, and once for each line `// without: NAME` in it with -DWITHOUT_NAME, where it must fail.
file(GLOB _cases CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/compile_fail/*.h)
set(_includes -I${PROJECT_BINARY_DIR}/include/core -I${PROJECT_BINARY_DIR}/include/expr
              -I${PROJECT_BINARY_DIR}/include/expr_generated)
foreach(_case ${_cases})
  get_filename_component(_name ${_case} NAME_WE)
  set(_compile ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -x c++ ${_includes} ${_case})
  add_test(NAME expr.compile.${_name} COMMAND ${_compile})
  set_tests_properties(expr.compile.${_name} PROPERTIES LABELS expr)
  file(STRINGS ${_case} _lines REGEX "^// without: ")
  foreach(_line ${_lines})
    string(REPLACE "// without: " "" _member "${_line}")
    set(_test expr.compile.${_name}_without_${_member})
    add_test(NAME ${_test} COMMAND ${_compile} -DWITHOUT_${_member})
    set_tests_properties(${_test} PROPERTIES WILL_FAIL TRUE LABELS expr)
  endforeach()
endforeach()
