# Plans as golden text.
target_sources(test_target PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/plan/golden.cpp)
