// Which core and tile a product runs on, and into how many parts its K is cut, or which algorithm of a library: what
// was measured, else an estimate. A library takes what was measured only.
#pragma once
#include <vector>

#include "tenon/backend/cuda/products/product_core.h"

namespace tenon::cuda {

/// Every choice of our own worth a try that the device can run, the best estimate first. TENON_CUDA_CORE leaves those
/// of one core.
std::vector<TileChoice> tile_choices(const ProductShape& product, const DeviceFacts& facts);

/// A library's choices, those it holds fastest first; none where it may not or cannot do the product.
std::vector<TileChoice> library_choices(const ProductShape& product, const DeviceFacts& facts);

/// What was measured for the product (tile_table.h), with its epilogue or else with any, if the device can run it; else
/// the best estimate. Where TENON_CUDA_CORE asks for a library, that one's first choice comes before all but measured
/// ones of libraries.
TileChoice choose_tile(const ProductShape& product, const DeviceFacts& facts);

}  // namespace tenon::cuda
