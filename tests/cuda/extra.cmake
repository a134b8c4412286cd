# Tests compile kernels for the host themselves: the headers' folder and the compiler.
find_package(Boost REQUIRED COMPONENTS context)
find_program(TENON_KERNEL_COMPILER c++ REQUIRED)
target_compile_definitions(test_cuda PRIVATE TENON_HOST_COMPILER="${TENON_KERNEL_COMPILER}"
                                             TENON_DEVICE_INCLUDES="${PROJECT_SOURCE_DIR}")
target_link_libraries(test_cuda PRIVATE Boost::context ${CMAKE_DL_LIBS})
# These share file-local names with others.
foreach(_apart attention_core attention_deep attention_short attention_wgmma conv_core core_code cudnn gemm_core)
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/${_apart}_test.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endforeach()
# What kernels call, which takes most of their time.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/emulated_tensor_core.cpp ${CMAKE_CURRENT_LIST_DIR}/emulated_block.cpp
                            PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
# The launches of tests/skeletons, the steps of tests/optim, the executables of tests/runtime and gradients, on the
# emulator.
target_sources(test_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/skeletons/harness.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/skeletons/plain_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/skeletons/gemm_test.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/skeletons/conv_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/skeletons/attention_test.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/skeletons/group_norm_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/skeletons/sample_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/skeletons/views_test.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/skeletons/new_view_test.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/skeletons/planned_test.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/planned/reductions_beside_test.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/planned/attention_gradient_test.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/planned/random_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/planned/random_program.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/planned/layers.cpp ${CMAKE_CURRENT_SOURCE_DIR}/planned/view_layers.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/planned/attention_layers.cpp ${CMAKE_CURRENT_SOURCE_DIR}/planned/check.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/planned/shrink.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/optim/lion_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/optim/lion_path_test.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/optim/list_test.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/gradients/autograd_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/gradients/cases.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/runtime/weight_store_test.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/runtime/repeated_updates_test.cpp
               ${CMAKE_CURRENT_SOURCE_DIR}/runtime/state_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/runtime/decode_loop_test.cpp)

# A tree with the headers of the additional cores in the place that docs/adding.md gives.
foreach(_header products/gemm_dot attention/attention_single)
  get_filename_component(_name ${_header} NAME)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${_name}.h
                 ${PROJECT_BINARY_DIR}/new_cores/tenon/backend/cuda/device/${_header}.h COPYONLY)
endforeach()
target_compile_definitions(test_cuda PRIVATE NEW_CORES="${PROJECT_BINARY_DIR}/new_cores")

# A fake driver, found as libcuda.so.1 in its own folder. It has another soname, or NVRTC would take it for the real one
# and require more of it.
add_library(tenon_fake_driver SHARED ${CMAKE_CURRENT_LIST_DIR}/fake_driver/fake_driver.cpp)
target_link_libraries(tenon_fake_driver PRIVATE tenon tenon_flags)
set(_fake_driver ${PROJECT_BINARY_DIR}/fake_driver)
set_target_properties(tenon_fake_driver PROPERTIES PREFIX "" OUTPUT_NAME libcuda SUFFIX .so.1 NO_SONAME ON
                      LIBRARY_OUTPUT_DIRECTORY ${_fake_driver})
target_link_options(tenon_fake_driver PRIVATE -Wl,-soname,libtenon_fake_driver.so -Wl,--as-needed)
target_compile_definitions(test_cuda PRIVATE FAKE_DRIVER_FOLDER="${_fake_driver}")
add_dependencies(test_cuda tenon_fake_driver)

# A fake cuBLASLt and a fake cuDNN, likewise.
foreach(_library cublasLt:cublaslt:13 cudnn:cudnn:9)
  string(REPLACE ":" ";" _library ${_library})
  list(GET _library 0 _file)
  list(GET _library 1 _name)
  list(GET _library 2 _major)
  string(TOUPPER ${_name} _upper)
  add_library(tenon_fake_${_name} SHARED ${CMAKE_CURRENT_LIST_DIR}/fake_${_name}/fake_${_name}.cpp)
  target_link_libraries(tenon_fake_${_name} PRIVATE tenon tenon_flags)
  set_target_properties(tenon_fake_${_name} PROPERTIES PREFIX "" OUTPUT_NAME lib${_file} SUFFIX .so.${_major} NO_SONAME ON
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fake_${_name})
  target_link_options(tenon_fake_${_name} PRIVATE -Wl,-soname,libtenon_fake_${_name}.so -Wl,--as-needed)
  target_compile_definitions(test_cuda PRIVATE FAKE_${_upper}_FOLDER="${PROJECT_BINARY_DIR}/fake_${_name}")
  add_dependencies(test_cuda tenon_fake_${_name})
endforeach()
