// Host side of device/products/gemm_wgmma.h and conv_wgmma.h: resources of a tile, and what a kernel call with it
// needs. Formulas only.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "tenon/backend/cuda/products/core_call.h"

namespace tenon::cuda {

/// device::WgmmaTile as a value.
struct WgmmaTileShape {
  int m = 128, n = 128, stages = 4, resident = 1, cluster = 1;
  bool in_ranges = false;  ///< sum in the order of GemmSizes::range
  int along_k = 1;         ///< blocks of a cluster that share a tile: each has one of as many parts of K

  bool operator==(const WgmmaTileShape&) const = default;
  int groups() const { return m > 128 ? 2 : m / 64; }
  int threads() const { return 128 * (groups() + 1); }
  /// True if operand B's rows per lane, and per block of a cluster, are whole blocks of 32.
  bool permutes_b(int lanes) const { return n % (32 * std::max(lanes, cluster)) == 0; }
  /// Rows of B that one copy loads if they are stored permuted: a lane's, or one block's share in a cluster.
  int rows_of_b(int lanes) const { return n / std::max(lanes, cluster); }
  /// For elements whose stages are accumulated in f32 (e4m3): columns whose per-stage sums are held separately at a
  /// time.
  int apart_columns() const { return m / 64 / groups() * n > 192 && n > 128 ? n / 2 : n; }
  /// True if those per-stage sums fit in a thread's registers next to the tile's sums.
  bool adds_stages() const {
    const int registers = m / 64 / groups() * n / 2 + apart_columns() / 2;
    return apart_columns() % 32 == 0 && registers <= (resident > 1 ? 64 : 192);
  }
  /// True if the sums of two ranges fit in registers.
  bool adds_ranges() const { return m <= 128 && n <= (cluster > 1 ? 64 : 128) && resident == 1; }
  int shared_bytes() const { return stages * (m + n) * 128 + 4 * groups() * (2 * n + 4) * 4 + 16 * stages + 16; }
  /// Columns of K per stage.
  int columns(int element_bytes) const { return 128 / element_bytes; }
  std::string type() const {
    std::string out = "WgmmaTile<" + std::to_string(m);
    for (int x : {n, stages, resident, cluster}) out += ", " + std::to_string(x);
    if (along_k > 1) return out + (in_ranges ? ", true, " : ", false, ") + std::to_string(along_k) + ">";
    return out + (in_ranges ? ", true>" : ">");
  }
};

/// `tiles_m` x `tiles_n` tiles, `batch` times, on persistent blocks, or if blocks share tiles, one for each of the
/// `splits` parts.
inline CallNeeds wgmma_needs(const WgmmaTileShape& tile, int64_t tiles_m, int64_t tiles_n, int batch, int splits,
                             int multiprocessors) {
  const int64_t tiles = div_up(tiles_m, tile.cluster) * tile.cluster * tiles_n * batch;
  const int64_t places = int64_t{multiprocessors} / tile.cluster * tile.cluster * tile.resident;
  const int64_t most = tile.along_k > 1 ? tiles * splits : std::max<int64_t>(places, tile.cluster);
  CallNeeds needs;
  needs.shape = {.grid_x = std::min(tiles * splits, most),
                 .threads = tile.threads(),
                 .shared_bytes = tile.shared_bytes(),
                 .cluster = tile.cluster * tile.along_k};
  if (splits > tile.along_k) {
    needs.counters = tiles;
    needs.workspace_bytes = tiles * splits * tile.m * tile.n * 4;
  }
  return needs;
}
inline CallNeeds gemm_needs(const WgmmaTileShape& tile, const device::GemmSizes& g, int lanes, int multiprocessors) {
  const int lane_columns = tile.n / lanes;
  return wgmma_needs(tile, (g.m + tile.m - 1) / tile.m, (g.n / lanes + lane_columns - 1) / lane_columns, g.batch,
                     g.split.splits, multiprocessors);
}
/// Call after choose_box.
inline CallNeeds conv_needs(const WgmmaTileShape& tile, const device::ConvSizes& c, int lanes, int multiprocessors) {
  const auto tiles = [](int64_t whole, int64_t part) { return (whole + part - 1) / part; };
  return wgmma_needs(
      tile, tiles(c.out_width, c.box_width) * tiles(c.out_height, c.box_height) * tiles(c.batch, c.box_images),
      tiles(c.outputs / lanes, tile.n / lanes) * c.phases * c.phases, 1, c.split.splits, multiprocessors);
}

}  // namespace tenon::cuda
