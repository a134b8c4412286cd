// Host side of device/mma_counts.h: whether a core can count what its epilogue stores, and what that takes. Formulas
// only.
#pragma once
#include <algorithm>
#include <cstdint>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/device/core_sizes.h"

namespace tenon::cuda {

/// Tiles of a core as counting sees them: partial sums a sample at most, and the rows of a tile where tiles straddle
/// samples. No slots: it cannot.
struct CountTiles {
  int64_t slots = 0, tile_rows = 0;
};

/// Tiles of `tile_rows` rows in plain order, whose warps have `warp_rows`, over samples of `inner` rows.
inline int64_t slots_of_rows(int64_t samples, int64_t inner, int64_t tile_rows, int64_t warp_rows) {
  if (inner == 0 || inner % warp_rows) return 0;
  int64_t most = 0;
  for (int64_t s = 0; s < samples; ++s)
    most = std::max(most, ((s + 1) * inner - 1) / tile_rows - s * inner / tile_rows + 1);
  return most;
}

/// Tiles that are a convolution's boxes, after choose_box; the 16 rows of a warp must lie in one image.
inline int64_t slots_of_boxes(const device::ConvSizes& c) {
  if (c.box_images > 1 && c.box_width * c.box_height % 16) return 0;
  return div_up(c.out_width, c.box_width) * div_up(c.out_height, c.box_height);
}

}  // namespace tenon::cuda
