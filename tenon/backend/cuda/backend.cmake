# The CUDA backend needs nothing of CUDA to be built: driver and compiler are loaded at run time (driver/libraries.h), and
# kernels are text that is embedded here.
target_link_libraries(tenon_backend_cuda PRIVATE OpenSSL::Crypto ${CMAKE_DL_LIBS})

# Headers that kernels may include, by their paths in the tree: below device/ (but for the host's half of the
# vocabulary), and these of other layers.
set(_shared tenon/core/hd.h tenon/core/hd_device.h tenon/core/philox.h tenon/expr/node_type.h tenon/expr/node_bodies.h)
file(GLOB _nodes CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tenon/expr/nodes/*.h)
file(GLOB_RECURSE _device CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
     ${PROJECT_SOURCE_DIR}/tenon/backend/cuda/device/*.h)
list(FILTER _device EXCLUDE REGEX "_host\\.h$")
set(_pairs "")
set(_files "")
foreach(_header ${_shared} ${_nodes} ${_device})
  list(APPEND _pairs ${_header}=${PROJECT_SOURCE_DIR}/${_header})
  list(APPEND _files ${PROJECT_SOURCE_DIR}/${_header})
endforeach()
list(JOIN _pairs "|" _pairs)
set(_embedded ${PROJECT_BINARY_DIR}/generated/cuda_embedded_headers.cpp)
set(_embed ${CMAKE_CURRENT_LIST_DIR}/driver/embed.cmake)
add_custom_command(OUTPUT ${_embedded}
                   COMMAND ${CMAKE_COMMAND} -DOUTPUT=${_embedded} "-DPAIRS=${_pairs}" -P ${_embed}
                   DEPENDS ${_files} ${_embed} COMMENT "Embedding the kernels' headers" VERBATIM)
target_sources(tenon_backend_cuda PRIVATE ${_embedded})
