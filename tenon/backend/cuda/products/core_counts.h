// Host side of device/products/mma_counts.h: whether a core can accumulate statistics of what its epilogue stores, and
// what that takes. Formulas only.
#pragma once
#include <algorithm>
#include <cstdint>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/device/products/core_sizes.h"

namespace tenon::cuda {

/// A core's tiles as the counting of statistics sees them: most partial sums per sample; rows per tile if tiles
/// straddle samples; whether a warp's 16 rows are always all valid or all invalid. 0 slots: the core cannot count.
struct CountTiles {
  int64_t slots = 0, tile_rows = 0;
  bool whole = true;
};

/// Partial sums per sample for tiles of `tile_rows` rows in plain order, with `warp_rows` rows per warp, over samples
/// of `inner` rows.
inline int64_t slots_of_rows(int64_t samples, int64_t inner, int64_t tile_rows, int64_t warp_rows) {
  if (inner == 0 || inner % warp_rows) return 0;
  int64_t most = 0;
  for (int64_t s = 0; s < samples; ++s)
    most = std::max(most, ((s + 1) * inner - 1) / tile_rows - s * inner / tile_rows + 1);
  return most;
}

/// Partial sums for tiles that are a convolution's boxes, after choose_box; a warp's 16 rows must lie in one image.
inline int64_t slots_of_boxes(const device::ConvSizes& c) {
  if (c.box_images > 1 && c.box_width * c.box_height % 16) return 0;
  return div_up(c.out_width, c.box_width) * div_up(c.out_height, c.box_height);
}

/// True if these boxes fill tiles of `tile_rows` rows, or 16 of them at a time, and never extend past an edge.
inline bool boxes_are_whole(const device::ConvSizes& c, int64_t tile_rows) {
  const int pixels = c.box_width * c.box_height * c.box_images;
  return c.out_width % c.box_width == 0 && c.out_height % c.box_height == 0 && c.batch % c.box_images == 0 &&
         (pixels == tile_rows || (tile_rows <= 128 && pixels % 16 == 0));
}

}  // namespace tenon::cuda
