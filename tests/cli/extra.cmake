# A family of models in its own file, which tests load into the program.
add_library(tenon_toy_family SHARED ${CMAKE_CURRENT_LIST_DIR}/toy_family/flat.cpp)
target_link_libraries(tenon_toy_family PRIVATE tenon tenon_flags)
target_compile_definitions(test_cli PRIVATE TOY_FAMILY="$<TARGET_FILE:tenon_toy_family>")
add_dependencies(test_cli tenon_toy_family)
