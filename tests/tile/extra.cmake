# Each file has its own Problem and check_everywhere, so no unity build.
set_target_properties(test_tile PROPERTIES UNITY_BUILD OFF)
