// Chooses a product's core, tile and split-K, or a library's algorithm: measured if possible, else estimated. A library
// is used only where measured.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tenon/backend/cuda/products/product_core.h"

namespace tenon::cuda {

/// Every choice of ours worth trying that the device can run, best estimate first. TENON_CUDA_CORE restricts them to
/// one core.
std::vector<TileChoice> tile_choices(const ProductShape& product, const DeviceFacts& facts);

/// A library's choices, those that it ranks fastest first; none if it may not or cannot do the product.
std::vector<TileChoice> library_choices(const ProductShape& product, const DeviceFacts& facts);

/// The choice in a table's line, if it is valid and can run here now: its tile is one of `own` (tile_choices), or the
/// installed library is the version that was measured.
std::optional<TileChoice> possible_choice(const std::optional<std::string>& line, const ProductShape& product,
                                          const std::vector<TileChoice>& own);

/// The measured choice for the product (tile_table.h), preferably with its epilogue, if the device can run it; else the
/// best estimate. If TENON_CUDA_CORE selects a library, its first choice wins over everything except measured library
/// choices.
TileChoice choose_tile(const ProductShape& product, const DeviceFacts& facts);

}  // namespace tenon::cuda
