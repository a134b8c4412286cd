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

  bool operator==(const MmaTileShape&) const = default;
  int threads() const { return 32 * warps_m * warps_n; }
  int shared_bytes() const {
    const int pipeline = stages * (m + n) * row_bytes, slabs = warps_m * warps_n * 16 * (n / warps_n + 8) * 4;
    return std::max(pipeline, slabs);
  }
  /// Columns of K in a stage.
  int columns(int element_bytes) const { return row_bytes / element_bytes; }
  /// True if results reach the epilogue in runs (device/mma_results.h).
  bool has_runs(int lanes) const { return n / warps_n % (32 * lanes) == 0; }
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

/// device::SkinnyTile as a value, whose rows are the product's.
struct SkinnyTileShape {
  int groups = 1, warps = 8;
  int walkers = 0;              ///< blocks that go from tile to tile; 0: each has one
  int slot_bytes = kSlotBytes;  ///< most that pieces on their way take of shared memory

  bool operator==(const SkinnyTileShape&) const = default;
  static constexpr int kMostRows = 16, kSlotBytes = 80 << 10;
  /// The same where `front` bytes of a block's `shared` are taken by rows that are computed in front.
  static int slot_bytes_beside(int64_t front, int shared) {
    return static_cast<int>(std::min<int64_t>(kSlotBytes, shared - front));
  }
  static int rows(int m) { return m > 8 ? 16 : 8; }
  /// Warps that are to be together on a multiprocessor: 16 rows take more registers.
  static int warps_there(int m) { return m > 8 ? 16 : 24; }
  int threads() const { return 32 * warps; }
  /// Pieces of 32 of K that a warp has; of those on their way, what is held in registers, and the rest.
  int pieces(int k) const { return ((k + 31) / 32 + warps - 1) / warps; }
  int held(int m, int lanes, int k) const {
    if (groups * lanes > 4 || walkers) return 0;  // sums take the registers, or the next tile's
    return std::clamp(pieces(k), 1, std::clamp(kHeldFragments / (groups * lanes), 1, 80 / rows(m)));
  }
  int slots(int m, int lanes, int k) const {
    const int most = std::max(2, slot_bytes / (warps * groups * lanes * 512));
    return std::min(pieces(k) - held(m, lanes, k), most);
  }
  int shared_bytes(int m, int lanes, int k) const {
    const int ring = slots(m, lanes, k) * 512, sums = rows(m) / 8 * 256;
    return warps * groups * lanes * (walkers ? ring + sums : std::max(ring, sums));
  }
  /// The type in kernels' text.
  std::string type(int m, int lanes, int k) const {
    std::string text = "SkinnyTile<" + std::to_string(rows(m));
    for (int x : {groups, warps, held(m, lanes, k), slots(m, lanes, k)}) text += ", " + std::to_string(x);
    return text + (walkers ? ", true>" : ">");
  }

 private:
  static constexpr int kHeldFragments = 2;
};
/// Of at most kMostRows rows, one batch, operand B in memory.
inline CoreLaunch gemm_launch(const SkinnyTileShape& tile, const device::GemmSizes& g, int lanes) {
  CoreLaunch launch;
  const int tiles = ((g.n / lanes + 31) / 32 * 4 + tile.groups - 1) / tile.groups;
  launch.shape = {.grid_x = static_cast<unsigned>(tile.walkers ? std::min(tile.walkers, tiles) : tiles),
                  .threads = static_cast<unsigned>(tile.threads()),
                  .shared_bytes = static_cast<unsigned>(tile.shared_bytes(g.m, lanes, g.k)),
                  .starts_next = true};
  return launch;
}

/// device::WgmmaTile as a value.
struct WgmmaTileShape {
  int m = 128, n = 128, stages = 4, resident = 1, cluster = 1;

  bool operator==(const WgmmaTileShape&) const = default;
  int groups() const { return m > 128 ? 2 : m / 64; }
  int threads() const { return 128 * (groups() + 1); }
  /// True if operand B's rows of a lane, and of a cluster's block, are whole runs of 32.
  bool has_runs(int lanes) const { return n % (32 * std::max(lanes, cluster)) == 0; }
  /// Rows of B that one copy brings where they lie in runs: a lane's, or a share of a cluster's block.
  int rows_of_b(int lanes) const { return n / std::max(lanes, cluster); }
  /// Columns whose sums of a stage are kept apart at a time, of elements whose stages are added in f32 (e4m3).
  int apart_columns() const { return m / 64 / groups() * n > 192 && n > 128 ? n / 2 : n; }
  /// True if such elements' sums fit the registers of a thread beside its tile's.
  bool adds_stages() const {
    const int registers = m / 64 / groups() * n / 2 + apart_columns() / 2;
    return apart_columns() % 32 == 0 && registers <= (resident > 1 ? 64 : 192);
  }
  int shared_bytes() const { return stages * (m + n) * 128 + 4 * groups() * (2 * n + 4) * 4 + 16 * stages + 16; }
  /// Columns of K in a stage.
  int columns(int element_bytes) const { return 128 / element_bytes; }
  std::string type() const {
    std::string text = "WgmmaTile<" + std::to_string(m);
    for (int x : {n, stages, resident, cluster}) text += ", " + std::to_string(x);
    return text + ">";
  }
};

/// `tiles_m` x `tiles_n` tiles, `batch` times, on blocks that stay.
inline CoreLaunch wgmma_launch(const WgmmaTileShape& tile, int64_t tiles_m, int64_t tiles_n, int batch, int splits,
                               int multiprocessors) {
  const int64_t tiles = div_up(tiles_m, tile.cluster) * tile.cluster * tiles_n * batch;
  const int64_t places = int64_t{multiprocessors} / tile.cluster * tile.cluster * tile.resident;
  CoreLaunch launch;
  launch.shape = {.grid_x = static_cast<unsigned>(std::min(tiles * splits, std::max<int64_t>(places, tile.cluster))),
                  .threads = static_cast<unsigned>(tile.threads()),
                  .shared_bytes = static_cast<unsigned>(tile.shared_bytes()),
                  .cluster = static_cast<unsigned>(tile.cluster)};
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
/// An operand of gemm_wgmma: `rows` (all batches) of `columns` elements, `row_bytes` apart; boxes of `box_rows`: the
/// tile's m for A, its rows_of_b for B that lies in runs.
inline TensorBox rows_box(const void* address, int element_bytes, int64_t rows, int64_t columns, int64_t row_bytes,
                          int box_rows) {
  return {.address = const_cast<void*>(address),
          .element_bytes = element_bytes,
          .rank = 2,
          .extent = {columns, rows},
          .stride_bytes = {element_bytes, row_bytes},
          .box = {128 / element_bytes, box_rows},
          .swizzle_bytes = 128};
}

/// Operand B of gemm_wgmma that does not lie in runs: a multiple of 8 `rows` (all batches) of `columns` elements,
/// `row_bytes` apart; boxes of 32 rows, which the box's dimensions put in runs: 2 rows, those 8 further, those 2
/// further.
inline TensorBox runs_box(const void* address, int element_bytes, int64_t rows, int64_t columns, int64_t row_bytes) {
  return {.address = const_cast<void*>(address),
          .element_bytes = element_bytes,
          .rank = 4,
          .extent = {columns, 2, rows / 8, 4},
          .stride_bytes = {element_bytes, row_bytes, 8 * row_bytes, 2 * row_bytes},
          .box = {128 / element_bytes, 2, 4, 4},
          .swizzle_bytes = 128};
}

/// Gives a convolution's tiles the box of output pixels that leaves the fewest of a tile's m rows unused.
inline void choose_box(const WgmmaTileShape& tile, device::ConvSizes& c) {
  int64_t best = 0;
  for (int width = 1; width <= std::min({tile.m, c.out_width, 256}); ++width) {
    const int height = std::min(c.out_height, tile.m / width), images = std::min(c.batch, tile.m / (width * height));
    const auto tiles = [](int whole, int part) { return (whole + part - 1) / part; };
    const int64_t count = int64_t{tiles(c.out_width, width)} * tiles(c.out_height, height) * tiles(c.batch, images);
    if (best == 0 || count <= best) best = count, c.box_width = width, c.box_height = height, c.box_images = images;
  }
}
/// True if conv_wgmma can do it: strides of 1, or of 2 over even images of whole steps of channels (one tensor).
inline bool conv_fits_boxes(const device::ConvSizes& c, int element_bytes) {
  if (c.channels * element_bytes % 16 != 0) return false;
  return c.stride == 1 ||
         (c.stride == 2 && c.width % 2 == 0 && c.height % 2 == 0 && c.channels * element_bytes % 128 == 0);
}
/// After choose_box.
inline CoreLaunch conv_launch(const WgmmaTileShape& tile, const device::ConvSizes& c, int lanes, int multiprocessors) {
  const auto tiles = [](int64_t whole, int64_t part) { return (whole + part - 1) / part; };
  return wgmma_launch(
      tile, tiles(c.out_width, c.box_width) * tiles(c.out_height, c.box_height) * tiles(c.batch, c.box_images),
      tiles(c.outputs / lanes, tile.n / lanes) * c.phases * c.phases, 1, c.split.splits, multiprocessors);
}
/// conv_wgmma's input, or one of several joined: `channels` of each pixel.
inline TensorBox pixels_box(const void* address, int element_bytes, const device::ConvSizes& c, int channels) {
  const int64_t pixel = int64_t{channels} * element_bytes, line = pixel * c.width, image = line * c.height;
  void* const at = const_cast<void*>(address);
  if (c.stride == 1)
    return {.address = at,
            .element_bytes = element_bytes,
            .rank = 4,
            .extent = {channels, c.width, c.height, c.batch},
            .stride_bytes = {element_bytes, pixel, line, image},
            .box = {128 / element_bytes, c.box_width, c.box_height, c.box_images},
            .swizzle_bytes = 128};
  return {.address = at,
          .element_bytes = element_bytes,
          .rank = 5,
          .extent = {2 * channels, c.width / 2, 2, c.height / 2, c.batch},
          .stride_bytes = {element_bytes, 2 * pixel, line, 2 * line, image},
          .box = {128 / element_bytes, c.box_width, 1, c.box_height, c.box_images},
          .swizzle_bytes = 128};
}
/// conv_wgmma's weights [rows][kernel_h * kernel_w][channels] that lie in runs; boxes of `box_rows`, the tile's
/// rows_of_b.
inline TensorBox taps_box(const void* address, int element_bytes, const device::ConvSizes& c, int64_t rows,
                          int box_rows) {
  const int64_t tap = int64_t{c.channels} * element_bytes, taps = int64_t{c.kernel_h} * c.kernel_w;
  return {.address = const_cast<void*>(address),
          .element_bytes = element_bytes,
          .rank = 3,
          .extent = {c.channels, taps, rows},
          .stride_bytes = {element_bytes, tap, taps * tap},
          .box = {128 / element_bytes, 1, box_rows},
          .swizzle_bytes = 128};
}
/// The same that do not, a multiple of 8 rows; boxes of 32 rows that are put in runs.
inline TensorBox taps_runs_box(const void* address, int element_bytes, const device::ConvSizes& c, int64_t rows) {
  const int64_t tap = int64_t{c.channels} * element_bytes, taps = int64_t{c.kernel_h} * c.kernel_w, row = taps * tap;
  return {.address = const_cast<void*>(address),
          .element_bytes = element_bytes,
          .rank = 5,
          .extent = {c.channels, taps, 2, rows / 8, 4},
          .stride_bytes = {element_bytes, tap, row, 8 * row, 2 * row},
          .box = {128 / element_bytes, 1, 2, 4, 4},
          .swizzle_bytes = 128};
}

}  // namespace tenon::cuda
