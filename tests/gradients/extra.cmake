target_sources(test_gradients PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/planned/cpu_devices.cpp)
