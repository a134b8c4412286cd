# A tree with softplus.h in the place that docs/adding.md gives for nodes. Everything generated from the list of nodes
# is compiled again for it, and linked before the library's.
set(_tree ${PROJECT_BINARY_DIR}/new_node)
file(GLOB _nodes CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tenon/expr/nodes/*.h)
file(GLOB _copies ${_tree}/tenon/expr/nodes/*.h)
foreach(_copy ${_copies})  # of nodes that no longer exist
  get_filename_component(_name ${_copy} NAME)
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/tenon/expr/nodes/${_name})
    file(REMOVE ${_copy})
  endif()
endforeach()
foreach(_node ${_nodes} ${CMAKE_CURRENT_LIST_DIR}/softplus.h)
  get_filename_component(_name ${_node} NAME)
  configure_file(${_node} ${_tree}/tenon/expr/nodes/${_name} COPYONLY)
endforeach()
_tenon_node_list(${_tree}/tenon/expr/nodes ${_tree}/tenon/expr_generated)
include(${PROJECT_SOURCE_DIR}/tenon/backend/cpu/tape/flags.cmake)
# The library's own instances of the same templates are checked for undefined behaviour; here that would take two
# minutes to compile.
if(TENON_SANITIZE MATCHES undefined)
  set_property(SOURCE ${_tape}/vec_avx2.cpp ${_tape}/vec_avx512.cpp APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=undefined)
endif()
target_sources(test_new_node PRIVATE ${PROJECT_SOURCE_DIR}/tenon/expr/node_type.cpp ${_tape}/vec_avx2.cpp
               ${_tape}/vec_avx512.cpp ${CMAKE_CURRENT_SOURCE_DIR}/expr/samples.cpp)
target_include_directories(test_new_node BEFORE PRIVATE ${_tree})
target_compile_definitions(test_new_node PRIVATE NODE_BODIES="${_tree}/tenon/expr_generated/node_bodies.inc")
set_target_properties(test_new_node PROPERTIES UNITY_BUILD OFF)
