// Host side of device/attention_mma.h: what a tile takes, which one suits a head, and how a problem is launched.
// Formulas only.
#pragma once
#include <algorithm>
#include <string>

#include "tenon/backend/cuda/core_launch.h"

namespace tenon::cuda {

/// device::AttentionTile as a value. Elements have 2 bytes.
struct AttentionTileShape {
  int depth = 64, value_columns = 64, queries = 128, keys = 64, warps = 4, stages = 3;

  static constexpr int kMostShallow = 160;  ///< deeper heads stream keys and values in blocks of 64 columns
  bool deep() const { return depth > kMostShallow; }
  int threads() const { return 32 * warps; }
  /// Whether the queries stay in registers.
  bool queries_stay() const {
    return !deep() && queries / warps / 16 * (depth / 4 + value_columns / 2 + keys / 2) <= 200;
  }
  int shared_bytes() const {
    const int stage = deep() ? keys * 64 * 2 : keys * (depth + value_columns) * 2;
    const int with_queries = (queries_stay() ? stages - 1 : stages) * stage + queries * depth * 2;
    const int slabs = warps * 16 * ((value_columns % 64 == 0 ? 64 : value_columns) + 8) * 4;
    return std::max({stages * stage, with_queries, slabs});
  }
  /// The type in kernels' text.
  std::string type() const {
    std::string text = "AttentionTile<" + std::to_string(depth);
    for (int x : {value_columns, queries, keys, warps, stages}) text += ", " + std::to_string(x);
    return text + ">";
  }
};

/// The tile for heads of `depth` (a multiple of 8) on a device whose blocks have up to `shared_limit` bytes of shared
/// memory. Null tile (depth 0) where there is none: heads deeper than a tile of queries has room for.
inline AttentionTileShape pick_attention_tile(int depth, int shared_limit) {
  AttentionTileShape tile;
  const auto fits = [&] { return tile.shared_bytes() <= shared_limit; };
  if (depth > AttentionTileShape::kMostShallow) {
    tile = {.depth = (depth + 63) / 64 * 64, .value_columns = 256, .queries = 64, .keys = 64, .warps = 4, .stages = 4};
    while (!fits() && tile.stages > 2) --tile.stages;
    if (!fits()) return {.depth = 0};
    return tile;
  }
  tile.depth = (depth + 15) / 16 * 16, tile.value_columns = depth;
  if (depth > 80) tile.queries = 64;
  while (!fits() && tile.stages > 2) --tile.stages;
  return tile;
}

/// Grid, threads and shared memory; there is no workspace.
inline CoreLaunch attention_launch(const AttentionTileShape& tile, const device::AttentionSizes& s) {
  const int tiles = (s.queries + tile.queries - 1) / tile.queries;
  const int parts = (s.depth + tile.value_columns - 1) / tile.value_columns;
  CoreLaunch launch;
  launch.shape = {.grid_x = static_cast<unsigned>(tiles * parts),
                  .grid_y = static_cast<unsigned>(s.heads),
                  .grid_z = static_cast<unsigned>(s.batch),
                  .threads = static_cast<unsigned>(tile.threads()),
                  .shared_bytes = static_cast<unsigned>(tile.shared_bytes())};
  return launch;
}

}  // namespace tenon::cuda
