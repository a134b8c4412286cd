// Host side of device/attention/attention_simt.h: resources of a tile, and which tile suits a problem. Formulas only.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "tenon/backend/cuda/products/core_call.h"

namespace tenon::cuda {

/// device::AttentionSimtTile as a value.
struct AttentionSimtShape {
  static constexpr int kKeys = 64;  ///< of a chunk

  int thread_rows = 8, depth = 64, slab = 64, warps = 4;
  bool few = false;

  int threads() const { return 32 * warps; }
  int rows() const { return 4 * thread_rows * (few ? 1 : warps); }
  int shared_bytes() const {
    const int stages = (few ? warps : 1) * 2 * kKeys * (slab + 4), weights = warps * 4 * thread_rows * (kKeys + 8);
    const int parts = few ? warps * rows() * (depth + 3) : 0;
    return (rows() * (depth + 4) + weights + stages + parts) * 4;
  }
  /// The type in kernel source.
  std::string type() const {
    std::string out = "AttentionSimtTile<" + std::to_string(thread_rows);
    for (int x : {depth, slab, warps}) out += ", " + std::to_string(x);
    return out + (few ? ", true>" : ", false>");
  }
};

/// Slabs of up to `most` columns (a multiple of 8) that together hold `depth` columns with the fewest to spare.
inline AttentionSimtShape with_slabs(AttentionSimtShape tile, int depth, int most) {
  tile.depth = 0;
  for (int slab = most; slab >= std::min(32, most); slab -= 8) {
    const int covered = (depth + slab - 1) / slab * slab;
    if (tile.depth == 0 || covered < tile.depth) tile.depth = covered, tile.slab = slab;
  }
  return tile;
}

/// Tiles for heads of `depth` columns on a device with up to `shared_limit` bytes of shared memory per block. A thread
/// holds the sums of its rows, so the deeper the heads, the fewer rows.
inline std::vector<AttentionSimtShape> attention_simt_tiles(int depth, int shared_limit) {
  std::vector<AttentionSimtShape> tiles;
  const auto add = [&](const AttentionSimtShape& tile) {
    for (const int most : {64, 32}) {
      const AttentionSimtShape cut = with_slabs(tile, depth, std::min(most, (depth + 7) / 8 * 8));
      if (cut.shared_bytes() > shared_limit) continue;
      tiles.push_back(cut);
      return;
    }
  };
  const int most = depth <= 64 ? 8 : depth <= 160 ? 4 : 2;
  for (const int rows : {8, 4, 2})
    if (rows <= most) add({.thread_rows = rows});
  for (const int warps : {4, 2}) add({.thread_rows = 2, .warps = warps, .few = true});
  return tiles;
}

/// Rows that share a head of keys; 0 without heads.
inline int rows_of_group(const device::AttentionSizes& s) { return s.kv_heads ? s.heads / s.kv_heads * s.queries : 0; }

/// The tile that is estimated to finish first; depth 0 if there is none. Results do not depend on it.
inline AttentionSimtShape pick_attention_simt(const device::AttentionSizes& s, const DeviceFacts& facts) {
  const int64_t rows = rows_of_group(s), heads = int64_t{s.batch} * s.kv_heads;
  // Cost of a row: the fewer rows a thread has, the more often it loads a key. Warps without a chunk are idle.
  const auto cost = [&](const AttentionSimtShape& tile) {
    const int chunks = (s.keys + tile.kKeys - 1) / tile.kKeys;
    const double idle = tile.few ? static_cast<double>(tile.warps) / std::clamp(chunks, 1, tile.warps) : 1;
    const double each = tile.few ? 2.2 : tile.thread_rows == 8 ? 1 : tile.thread_rows == 4 ? 1.15 : 1.8;
    const int64_t blocks = (rows + tile.rows() - 1) / tile.rows() * heads;
    const int64_t rounds = (blocks + facts.multiprocessors - 1) / facts.multiprocessors;
    // A block of two warps leaves half of a multiprocessor to another.
    return static_cast<double>(rounds * tile.rows()) * each * idle * (tile.warps < 4 ? 2 : 1);
  };
  const std::vector<AttentionSimtShape> tiles = attention_simt_tiles(s.depth, facts.shared_bytes);
  if (tiles.empty()) return {.depth = 0};
  return *std::min_element(tiles.begin(), tiles.end(), [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
}

/// Grid, threads and shared memory; there is no workspace.
inline CallNeeds attention_needs(const AttentionSimtShape& tile, const device::AttentionSizes& s) {
  const int rows = rows_of_group(s);
  return {.shape = {.grid_x = (rows + tile.rows() - 1) / tile.rows(),
                    .grid_y = s.kv_heads,
                    .grid_z = s.batch,
                    .threads = tile.threads(),
                    .shared_bytes = tile.shared_bytes()}};
}

}  // namespace tenon::cuda
