# The door: which headers are installed, and which symbols the installed library exports. The headers below are for
# users; headers that they include are installed too, nothing else. Declarations of other headers are hidden in the
# installed library, unless a program of this tree uses them. The build tree's library exports everything for tests.
set(TENON_DOOR
    # expressions: nodes, gradients, layers, and their evaluation in fp64
    expr/ops.h expr/precision.h expr/vjp.h oracle/oracle.h
    nn/attention.h nn/diffusion.h nn/linear.h nn/loss.h nn/norm.h optim/lion.h
    # plans
    plan/plan.h plan/one_launch.h explain/explanation.h explain/parse_plan.h
    # running them
    backend/backend.h runtime/executable.h core/compare.h core/host_tensor.h core/log.h core/stop.h
    # pipelines
    pipelines/image_embedder.h pipelines/image_generator.h pipelines/text_generator.h io/image.h)

# All headers, as paths below `root`/`prefix`, that `headers` include directly or indirectly.
function(_tenon_closure out root headers)
  set(found ${headers})
  set(ahead ${headers})
  while(ahead)
    list(POP_FRONT ahead header)
    if(header MATCHES "_generated/")
      continue()
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${root}/${header})
    file(STRINGS ${root}/${header} lines REGEX "^#include \"tenon/")
    foreach(line ${lines})
      string(REGEX REPLACE ".*\"tenon/(.*)\".*" "\\1" included "${line}")
      if(NOT included IN_LIST found)
        list(APPEND found ${included})
        list(APPEND ahead ${included})
      endif()
    endforeach()
  endwhile()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# Installs the door's headers, and makes tenon_installed: the library tenon that exports only the door's symbols.
function(tenon_door)
  set(root ${PROJECT_SOURCE_DIR}/tenon)
  file(GLOB nodes CONFIGURE_DEPENDS RELATIVE ${root} ${root}/expr/nodes/*.h)
  _tenon_closure(headers ${root} "${TENON_DOOR};${nodes}")
  foreach(header ${headers})
    get_filename_component(folder ${header} DIRECTORY)
    set(file ${root}/${header})
    if(header MATCHES "_generated/")
      set(file ${PROJECT_BINARY_DIR}/generated/tenon/${header})
    endif()
    install(FILES ${file} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tenon/${folder} COMPONENT development)
  endforeach()

  # Headers that the programs include may be used by them.
  set(used "")
  file(GLOB_RECURSE programs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/apps/*.cpp ${PROJECT_SOURCE_DIR}/apps/*.h)
  foreach(program ${programs})
    file(STRINGS ${program} lines REGEX "^#include \"tenon/")
    foreach(line ${lines})
      string(REGEX REPLACE ".*\"tenon/(.*)\".*" "\\1" included "${line}")
      list(APPEND used ${included})
    endforeach()
  endforeach()
  list(APPEND used ${headers})
  list(REMOVE_DUPLICATES used)
  list(FILTER used EXCLUDE REGEX "_generated/")
  _tenon_closure(used ${root} "${used}")
  list(FILTER used EXCLUDE REGEX "_generated/")
  list(TRANSFORM used PREPEND ${root}/)
  file(GLOB backends LIST_DIRECTORIES true RELATIVE ${root}/backend ${root}/backend/*)
  list(FILTER backends EXCLUDE REGEX "\\.")

  set(script ${PROJECT_BINARY_DIR}/generated/door.map)
  set(make ${PROJECT_SOURCE_DIR}/cmake/exported_symbols.cmake)
  add_custom_command(OUTPUT ${script} DEPENDS tenon ${used} ${make} VERBATIM COMMENT "What the installed library shows"
                     COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DLIBRARY=$<TARGET_FILE:tenon> "-DHEADERS=${used}"
                             "-DHIDDEN=${backends}" -DOUT=${script} -P ${make})
  add_custom_target(tenon_door_map DEPENDS ${script})
  add_library(tenon_installed SHARED)
  add_dependencies(tenon_installed tenon_door_map)
  target_link_libraries(tenon_installed PRIVATE ${TENON_LAYERS})
  target_link_options(tenon_installed PRIVATE -Wl,--version-script=${script})
  set_target_properties(tenon_installed PROPERTIES OUTPUT_NAME tenon EXPORT_NAME tenon LINK_DEPENDS ${script}
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/installed)
  tenon_usage(tenon_installed)
endfunction()
