# Files that docs/adding.md says how to write, at the places that it gives. Those of the library are libraries here,
# which tests load into the program as built; the verb is linked with the program's objects.
set(_new ${CMAKE_CURRENT_LIST_DIR}/new_files)
set(_built ${PROJECT_BINARY_DIR}/new_files)
file(GLOB_RECURSE _files CONFIGURE_DEPENDS ${_new}/tenon/*.cpp)
foreach(_file ${_files})
  get_filename_component(_name ${_file} NAME_WE)
  add_library(tenon_new_${_name} SHARED ${_file})
  target_link_libraries(tenon_new_${_name} PRIVATE tenon tenon_flags)
  set_target_properties(tenon_new_${_name} PROPERTIES OUTPUT_NAME ${_name} LIBRARY_OUTPUT_DIRECTORY ${_built})
  add_dependencies(test_cli tenon_new_${_name})
endforeach()
add_executable(tenon_with_new_verb $<TARGET_OBJECTS:tenon_cli>)
tenon_verbs(tenon_with_new_verb ${_new}/apps/cli)
set_target_properties(tenon_with_new_verb PROPERTIES OUTPUT_NAME tenon RUNTIME_OUTPUT_DIRECTORY ${_built})
add_dependencies(test_cli tenon_with_new_verb)
target_compile_definitions(test_cli PRIVATE NEW_FILES="${_built}")

# Tests of samplers are about every sampler there is, a new one too.
if(NOT TENON_SANITIZE)
  add_test(NAME samplers.with_a_new_one COMMAND test_samplers)
  set_tests_properties(samplers.with_a_new_one PROPERTIES LABELS samplers
                       ENVIRONMENT LD_PRELOAD=$<TARGET_FILE:tenon_new_adams_bashforth>)
endif()
