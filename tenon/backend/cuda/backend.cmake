# Building the CUDA backend needs nothing from CUDA: driver and compiler are loaded at run time (driver/libraries.h),
# and kernels are source embedded here.
target_link_libraries(tenon_backend_cuda PRIVATE OpenSSL::Crypto ${CMAKE_DL_LIBS})
if(TENON_SANITIZE)  # it writes sources and starts kernels; optimising it takes longer than running it
  target_compile_options(tenon_backend_cuda PRIVATE -O0)
endif()

# Headers that kernels may include, by their paths in the tree: those below device/ (except the vocabulary's host half),
# and these of other layers.
set(_shared tenon/core/hd.h tenon/core/hd_device.h tenon/core/philox.h tenon/expr/node_type.h tenon/expr/node_bodies.h)
file(GLOB _nodes CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tenon/expr/nodes/*.h)
file(GLOB_RECURSE _device CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
     ${PROJECT_SOURCE_DIR}/tenon/backend/cuda/device/*.h)
list(FILTER _device EXCLUDE REGEX "_host\\.h$")
file(GLOB _tiles CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/products/tiles/*.txt)

set(_headers "")
foreach(_header ${_shared} ${_nodes} ${_device})
  list(APPEND _headers ${_header}=${PROJECT_SOURCE_DIR}/${_header})
endforeach()
set(_declared tenon/backend/cuda/driver/embedded_texts.h)
tenon_embed_texts(tenon_backend_cuda ${_declared} tenon::cuda::embedded_headers ${_headers})
set(_tables "")
foreach(_table ${_tiles})
  get_filename_component(_arch ${_table} NAME_WE)
  list(APPEND _tables ${_arch}=${_table})
endforeach()
tenon_embed_texts(tenon_backend_cuda ${_declared} tenon::cuda::embedded_tiles ${_tables})
