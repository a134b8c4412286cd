// Host side of the tensor-core kernels (device/gemm_mma.h, conv_mma.h): what a tile takes, and how a problem is
// launched with it. Formulas only.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/device/core_sizes.h"

namespace tenon::cuda {

/// device::MmaTile as a value.
struct MmaTileShape {
  int m = 128, n = 128, warps_m = 2, warps_n = 2, row_bytes = 64, stages = 4;

  int threads() const { return 32 * warps_m * warps_n; }
  int shared_bytes() const {
    const int pipeline = stages * (m + n) * row_bytes, slabs = warps_m * warps_n * 16 * (n / warps_n + 8) * 4;
    return std::max(pipeline, slabs);
  }
  /// Columns of K in a stage.
  int columns(int element_bytes) const { return row_bytes / element_bytes; }
  /// The type in kernels' text.
  std::string type() const {
    std::string text = "MmaTile<" + std::to_string(m);
    for (int x : {n, warps_m, warps_n, row_bytes, stages}) text += ", " + std::to_string(x);
    return text + ">";
  }
};

/// A launch, and what SplitK wants of it: nothing with one split.
struct CoreLaunch {
  LaunchShape shape;
  int64_t workspace_bytes = 0;
  int64_t counters = 0;  ///< of 4 bytes, zero before the first launch
};

/// Stages of K: more splits than these would leave blocks without work.
inline int k_steps(const MmaTileShape& tile, int k, int element_bytes) {
  return (k + tile.columns(element_bytes) - 1) / tile.columns(element_bytes);
}

/// A product of m x n (n over all lanes), `batch` times.
inline CoreLaunch mma_launch(const MmaTileShape& tile, int m, int n, int lanes, int batch, int splits) {
  const int64_t tiles_m = (m + tile.m - 1) / tile.m, lane_columns = tile.n / lanes;
  const int64_t tiles = tiles_m * ((n / lanes + lane_columns - 1) / lane_columns);
  CoreLaunch launch;
  launch.shape = {.grid_x = static_cast<unsigned>(tiles),
                  .grid_y = static_cast<unsigned>(splits),
                  .grid_z = static_cast<unsigned>(batch),
                  .threads = static_cast<unsigned>(tile.threads()),
                  .shared_bytes = static_cast<unsigned>(tile.shared_bytes())};
  if (splits > 1) {
    launch.counters = tiles * batch;
    launch.workspace_bytes = tiles * batch * splits * tile.m * tile.n * 4;
  }
  return launch;
}
inline CoreLaunch gemm_launch(const MmaTileShape& tile, const device::GemmSizes& g, int lanes) {
  return mma_launch(tile, g.m, g.n, lanes, g.batch, g.split.splits);
}
/// One product: a row for each output pixel, a column for each output channel.
inline CoreLaunch conv_launch(const MmaTileShape& tile, const device::ConvSizes& c, int lanes) {
  return mma_launch(tile, c.batch * c.out_height * c.out_width, c.outputs, lanes, 1, c.split.splits);
}

/// device::WgmmaTile as a value.
struct WgmmaTileShape {
  int m = 128, n = 128, stages = 4;

  int threads() const { return 2 * m + 128; }
  int shared_bytes() const {
    const int slab_columns = n < 256 ? 64 : 32;
    return stages * (m + n) * 128 + m / 16 * 16 * (slab_columns + 8) * 4 + 16 * stages + 16;
  }
  /// Columns of K in a stage.
  int columns(int element_bytes) const { return 128 / element_bytes; }
  std::string type() const {
    return "WgmmaTile<" + std::to_string(m) + ", " + std::to_string(n) + ", " + std::to_string(stages) + ">";
  }
};

/// `tiles_m` x `tiles_n` tiles, `batch` times, on blocks that stay.
inline CoreLaunch wgmma_launch(const WgmmaTileShape& tile, int64_t tiles_m, int64_t tiles_n, int batch, int splits,
                               int multiprocessors) {
  const int64_t tiles = tiles_m * tiles_n * batch;
  CoreLaunch launch;
  launch.shape = {.grid_x = static_cast<unsigned>(std::min<int64_t>(tiles * splits, multiprocessors)),
                  .threads = static_cast<unsigned>(tile.threads()),
                  .shared_bytes = static_cast<unsigned>(tile.shared_bytes())};
  if (splits > 1) {
    launch.counters = tiles;
    launch.workspace_bytes = tiles * splits * tile.m * tile.n * 4;
  }
  return launch;
}
inline CoreLaunch gemm_launch(const WgmmaTileShape& tile, const device::GemmSizes& g, int lanes, int multiprocessors) {
  const int lane_columns = tile.n / lanes;
  return wgmma_launch(tile, (g.m + tile.m - 1) / tile.m, (g.n / lanes + lane_columns - 1) / lane_columns, g.batch,
                      g.split.splits, multiprocessors);
}
/// An operand of gemm_wgmma: `rows` (all batches) of `columns` elements; boxes of `box_rows`: the tile's m for A, its
/// n / lanes for B.
inline TensorBox rows_box(const void* address, int element_bytes, int64_t rows, int64_t columns, int box_rows) {
  return {.address = const_cast<void*>(address),
          .element_bytes = element_bytes,
          .rank = 2,
          .extent = {columns, rows},
          .stride_bytes = {element_bytes, columns * element_bytes},
          .box = {128 / element_bytes, box_rows},
          .swizzle_bytes = 128};
}

}  // namespace tenon::cuda
