# The CUDA backend needs nothing of CUDA to be built: driver and compiler are loaded at run time (driver/libraries.h), and
# kernels are text that is embedded here.
target_link_libraries(tenon_backend_cuda PRIVATE OpenSSL::Crypto ${CMAKE_DL_LIBS})

# device/*.h are "tenon/device/x.h" to the host's compiler too, which runs them in the tests.
_tenon_include_root(device ${PROJECT_SOURCE_DIR}/src/backend/cuda/device _root)
target_include_directories(tenon_backend_cuda PUBLIC ${_root})

# Headers that kernels may include: below device/ (but for the host's half of the vocabulary), and these of other layers,
# relative to src.
set(_shared core/hd.h core/hd_device.h expr/node_type.h expr/node_bodies.h)
file(GLOB _nodes CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/src/expr/nodes/*.h)
file(GLOB_RECURSE _device CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src/backend/cuda
     ${PROJECT_SOURCE_DIR}/src/backend/cuda/device/*.h)
list(FILTER _device EXCLUDE REGEX "_host\\.h$")
set(_pairs "")
set(_files "")
foreach(_header ${_shared} ${_nodes})
  list(APPEND _pairs tenon/${_header}=${PROJECT_SOURCE_DIR}/src/${_header})
  list(APPEND _files ${PROJECT_SOURCE_DIR}/src/${_header})
endforeach()
foreach(_header ${_device})
  list(APPEND _pairs tenon/${_header}=${PROJECT_SOURCE_DIR}/src/backend/cuda/${_header})
  list(APPEND _files ${PROJECT_SOURCE_DIR}/src/backend/cuda/${_header})
endforeach()
list(JOIN _pairs "|" _pairs)
set(_embedded ${PROJECT_BINARY_DIR}/generated/cuda_embedded_headers.cpp)
set(_embed ${CMAKE_CURRENT_LIST_DIR}/driver/embed.cmake)
add_custom_command(OUTPUT ${_embedded}
                   COMMAND ${CMAKE_COMMAND} -DOUTPUT=${_embedded} "-DPAIRS=${_pairs}" -P ${_embed}
                   DEPENDS ${_files} ${_embed} COMMENT "Embedding the kernels' headers" VERBATIM)
target_sources(tenon_backend_cuda PRIVATE ${_embedded})
