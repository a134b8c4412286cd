// Host side of device/products/gemm_mma.h and conv_mma.h: resources of a tile, and what a kernel call with it needs.
// Formulas only.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "tenon/backend/cuda/products/core_call.h"

namespace tenon::cuda {

/// device::MmaTile as a value.
struct MmaTileShape {
  int m = 128, n = 128, warps_m = 2, warps_n = 2, row_bytes = 64, stages = 4;

  bool operator==(const MmaTileShape&) const = default;
  int threads() const { return 32 * warps_m * warps_n; }
  int shared_bytes() const {
    const int pipeline = stages * (m + n) * row_bytes, slabs = warps_m * warps_n * 16 * (n / warps_n + 8) * 4;
    return std::max(pipeline, slabs);
  }
  /// Columns of K per stage.
  int columns(int element_bytes) const { return row_bytes / element_bytes; }
  /// True if the rows of B are permuted (device/products/mma_results.h).
  bool permutes_b(int lanes) const { return n / warps_n % (32 * lanes) == 0; }
  /// The type in kernel source.
  std::string type() const {
    std::string out = "MmaTile<" + std::to_string(m);
    for (int x : {n, warps_m, warps_n, row_bytes, stages}) out += ", " + std::to_string(x);
    return out + ">";
  }
};

/// Number of K tiles: with more splits than these, blocks would have no work.
inline int k_tiles(const MmaTileShape& tile, int k, int element_bytes) {
  return (k + tile.columns(element_bytes) - 1) / tile.columns(element_bytes);
}

/// A product of m x n (n counts all lanes), `batch` times.
inline CallNeeds mma_needs(const MmaTileShape& tile, int m, int n, int lanes, int batch, int splits) {
  const int64_t tiles_m = (m + tile.m - 1) / tile.m, lane_columns = tile.n / lanes;
  const int64_t tiles = tiles_m * ((n / lanes + lane_columns - 1) / lane_columns);
  CallNeeds needs;
  needs.shape = {.grid_x = tiles,
                 .grid_y = splits,
                 .grid_z = batch,
                 .threads = tile.threads(),
                 .shared_bytes = tile.shared_bytes()};
  if (splits > 1) {
    needs.counters = tiles * batch;
    needs.workspace_bytes = tiles * batch * splits * tile.m * tile.n * 4;
  }
  return needs;
}
inline CallNeeds gemm_needs(const MmaTileShape& tile, const device::GemmSizes& g, int lanes) {
  return mma_needs(tile, g.m, g.n, lanes, g.batch, g.split.splits);
}
/// A convolution as one product: a row per output pixel, a column per output channel.
inline CallNeeds conv_needs(const MmaTileShape& tile, const device::ConvSizes& c, int lanes) {
  return mma_needs(tile, c.batch * c.out_height * c.out_width, c.outputs, lanes, 1, c.split.splits);
}

}  // namespace tenon::cuda
