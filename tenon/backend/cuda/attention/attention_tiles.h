// Host side of device/attention/attention_mma.h, attention_wgmma.h, attention_short.h, attention_deep.h and
// attention_grouped.h: resources of a tile, which tile suits a head, and what the kernel call of a problem needs.
// Formulas only.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "tenon/backend/cuda/products/core_call.h"

namespace tenon::cuda {

/// Whether a single token's attention over a cache supports heads of `depth` columns.
inline bool grouped_depth(int64_t depth) { return depth >= 16 && depth <= 128 && (depth & (depth - 1)) == 0; }
/// A tile's kOrder: with one_order, such heads are summed in the common order.
inline int attention_order(const device::AttentionSizes& s, const DeviceFacts& facts) {
  return !facts.one_order || !grouped_depth(s.depth) ? 0 : s.keys <= 1024 ? 1 : 2;
}

/// device::AttentionTile as a value. Elements have 2 bytes.
struct AttentionTileShape {
  int depth = 64, value_columns = 64, queries = 128, keys = 64, warps = 4, stages = 3, order = 0;

  static constexpr int kMaxShallow = 160;  ///< deeper heads stream keys and values in blocks of 64 columns
  bool deep() const { return depth > kMaxShallow; }
  int threads() const { return 32 * warps; }
  /// Whether the queries stay in registers.
  bool queries_stay() const {
    return !deep() && queries / warps / 16 * (depth / 4 + (order ? 2 : 1) * value_columns / 2 + keys / 2) <= 170;
  }
  int shared_bytes() const {
    const int stage = deep() ? keys * 64 * 2 : keys * (depth + value_columns) * 2;
    const int with_queries = (queries_stay() ? stages - 1 : stages) * stage + queries * depth * 2;
    const int slabs = warps * 16 * ((value_columns % 64 == 0 ? 64 : value_columns) + 8) * 4;
    return std::max({stages * stage, with_queries, slabs}) + (order > 1 ? queries * value_columns * 4 : 0);
  }
  /// The type in kernel source.
  std::string type() const {
    std::string out = "AttentionTile<" + std::to_string(depth);
    for (int x : {value_columns, queries, keys, warps, stages}) out += ", " + std::to_string(x);
    return out + (order ? ", " + std::to_string(order) : "") + ">";
  }
};

/// Tiles for heads of `depth` (a multiple of 8) on a device with up to `shared_limit` bytes of shared memory per block,
/// most promising first; none if the queries do not fit. A multiprocessor holds two blocks of four warps, or one of
/// eight. Warps of 32 queries read shared memory half as often, which suits devices whose tensor cores are fast
/// relative to it, and which also have more of it. With an `order` there are no registers for such warps.
inline std::vector<AttentionTileShape> attention_tiles(int depth, int shared_limit, int order = 0) {
  std::vector<AttentionTileShape> tiles;
  const auto add = [&](AttentionTileShape tile) {
    if (order > 0 && tile.queries > 16 * tile.warps) return;
    tile.order = order;
    while (tile.shared_bytes() > shared_limit && tile.stages > 2) --tile.stages;
    if (order > 0 && tile.shared_bytes() > shared_limit) tile.keys = 32;
    if (tile.shared_bytes() <= shared_limit) tiles.push_back(tile);
  };
  if (depth > AttentionTileShape::kMaxShallow) {
    for (int columns : {256, 128}) add({(depth + 63) / 64 * 64, columns, 64, 64, 4, 4});
    return tiles;
  }
  const int padded = (depth + 15) / 16 * 16;
  const bool small = shared_limit < 128 << 10;  // no room for two blocks of wide rows
  const AttentionTileShape wide{padded, depth, 128, 64, 4, 3}, tall{padded, depth, 128, 64, 8, 3},
      square{padded, depth, 64, 64, 4, 3};
  if (depth <= 64 || (depth <= 80 && !small)) {
    for (const AttentionTileShape& tile : {wide, tall, square}) add(tile);
  } else if (depth <= 128 && small) {
    for (const AttentionTileShape& tile : {tall, square}) add(tile);
  } else {
    for (const AttentionTileShape& tile : {square, tall}) add(tile);
  }
  return tiles;
}

/// The first of attention_tiles; a tile of depth 0 if there is none.
inline AttentionTileShape pick_attention_tile(int depth, int shared_limit, int order = 0) {
  const auto tiles = attention_tiles(depth, shared_limit, order);
  return tiles.empty() ? AttentionTileShape{.depth = 0} : tiles.front();
}

/// Grid, threads and shared memory; there is no workspace.
inline CallNeeds attention_needs(const AttentionTileShape& tile, const device::AttentionSizes& s) {
  const int tiles = (s.queries + tile.queries - 1) / tile.queries;
  const int parts = (s.depth + tile.value_columns - 1) / tile.value_columns;
  return {.shape = {.grid_x = tiles * parts,
                    .grid_y = s.heads,
                    .grid_z = s.batch,
                    .threads = tile.threads(),
                    .shared_bytes = tile.shared_bytes()}};
}

/// device::AttentionWgmmaTile as a value.
struct AttentionWgmmaShape {
  int depth = 64, value_columns = 64, groups = 2, keys = 128, stages = 2, blocks = 1;
  bool turns = false;
  int order = 0;

  int queries() const { return 64 * groups; }
  int threads() const { return 128 * groups + 128; }
  int shared_bytes() const {
    const int column_blocks = (depth + 63) / 64, n = value_columns;
    const int slab = 16 * ((n % 80 == 0 ? 80 : n % 64 == 0 ? 64 : n) + 8) * 4;
    const int group = std::max(column_blocks * 64 * 128, (4 * slab + 1023) / 1024 * 1024);
    const int segments = order > 1 ? groups * 64 * value_columns * 4 : 0;
    return stages * 2 * column_blocks * keys * 128 + groups * group + segments + 32 * stages + 16;
  }
  std::string type() const {
    std::string out = "AttentionWgmmaTile<" + std::to_string(depth);
    for (int x : {value_columns, groups, keys, stages, blocks}) out += ", " + std::to_string(x);
    return out + (turns ? ", true" : ", false") + (order ? ", " + std::to_string(order) : "") + ">";
  }
};

/// Result columns that the wgmma instructions support: `depth` rounded up; 0 if it exceeds them all.
inline int wgmma_value_columns(int depth) {
  for (const int n : {40, 64, 80, 96, 128, 160, 192, 256})
    if (depth <= n) return n;
  return 0;
}

/// Tiles of 64 queries, over all heads of the batch.
inline int64_t tiles_of_64(const device::AttentionSizes& s) {
  return int64_t{s.batch} * s.heads * ((s.queries + 63) / 64);
}

/// The wgmma tile for a problem, depth 0 if there is none. The rules are what was fastest on an H200:
///  - keys: the widest tile that fits in registers and pads no more than another, or only a little more;
///  - few tiles of keys: little can overlap within a block, so blocks have one warpgroup, and as many of them share a
///    multiprocessor as work, registers and shared memory allow;
///  - many: one block of four or three warpgroups, whichever registers allow, if there is enough work and heads are not
///    deep, else of two, in ping-pong: one's softmax overlaps the others' products. Two warpgroups with deep heads do
///    not ping-pong;
///  - three stages of keys and values if they fit.
/// With one_order, tiles divide chunks of 128 keys, and a second set of sums takes registers. `page`: page length of
/// paged keys, a multiple of 64 that the tile divides; 0: contiguous.
inline AttentionWgmmaShape pick_attention_wgmma(const device::AttentionSizes& s, const DeviceFacts& facts,
                                                int64_t page = 0) {
  AttentionWgmmaShape tile;
  tile.depth = (s.depth + 15) / 16 * 16;
  tile.value_columns = wgmma_value_columns(s.depth);
  if (tile.value_columns == 0) return {.depth = 0};
  const auto padded = [&](int keys) { return (s.keys + keys - 1) / keys * keys; };
  const int64_t halves = tiles_of_64(s);
  const bool few_keys = padded(64) <= 6 * 64;
  tile.groups = few_keys || halves <= facts.multiprocessors                                ? 1
                : tile.value_columns <= 128 && halves > int64_t{3} * facts.multiprocessors ? 4
                                                                                           : 2;
  tile.order = attention_order(s, facts);
  // A thread's scores, weights and sums, and 40 registers for the rest.
  const auto registers = [&](int keys) { return (3 * keys + (tile.order ? 4 : 2) * tile.value_columns) / 4 + 40; };
  const auto most_registers = [&] { return tile.groups == 4 ? 112 : tile.groups == 3 ? 168 : 240; };
  while (tile.groups > 2 && registers(64) > most_registers()) --tile.groups;
  const auto room = [&](int keys) {
    AttentionWgmmaShape with = tile;
    with.keys = keys, with.stages = s.keys <= keys ? 1 : 2;
    return registers(keys) <= most_registers() && with.shared_bytes() <= facts.shared_bytes;
  };
  tile.keys = 64;
  for (const int keys : {80, 96, 128})
    if (padded(keys) <= padded(tile.keys) + s.keys / 16 && page % keys == 0 && room(keys) &&
        (!tile.order || 128 % keys == 0))
      tile.keys = keys;
  const int key_tiles = padded(tile.keys) / tile.keys;
  tile.stages = std::clamp(key_tiles, 1, 3);
  while (tile.stages > 2 && tile.shared_bytes() > facts.shared_bytes) --tile.stages;
  const int max_blocks = static_cast<int>(std::min<int64_t>(3, halves / facts.multiprocessors + 1));
  const auto fits = [&](int blocks) {
    return registers(tile.keys) <= 512 / blocks - 24 && blocks * (tile.shared_bytes() + 1024) <= facts.shared_bytes;
  };
  while (tile.groups == 1 && tile.blocks < max_blocks && fits(tile.blocks + 1)) ++tile.blocks;
  tile.turns = tile.groups >= 3 || (tile.groups == 2 && tile.depth <= 96);
  return tile.shared_bytes() <= facts.shared_bytes ? tile : AttentionWgmmaShape{.depth = 0};
}

/// Tiles of a head's queries: the fewest that cover them, or more if smaller last tiles let the multiprocessors finish
/// together. `heads`: over the whole batch.
inline int attention_query_tiles(const AttentionWgmmaShape& tile, int queries, int64_t heads, int multiprocessors) {
  const int all = (queries + 63) / 64, fewest = (all + tile.groups - 1) / tile.groups;
  // Cost of a tile of `groups` times 64 queries: start and end, and what an idle warpgroup leaves undone.
  const auto cost = [&](int groups) { return groups + 0.3 + 0.3 * (tile.groups - groups); };
  const auto makespan = [&](int tiles) {
    const int64_t slots = int64_t{multiprocessors} * tile.blocks, large = heads * (all % tiles);
    int64_t small = heads * (tiles - all % tiles);
    const double large_cost = cost(all / tiles + 1), small_cost = cost(all / tiles);
    // Loads of the slots that took one more large tile than the others, and of those others.
    double loads[2] = {static_cast<double>(large / slots + 1) * large_cost,
                       static_cast<double>(large / slots) * large_cost};
    const int64_t counts[2] = {large % slots, slots - large % slots};
    double end = counts[0] ? loads[0] : loads[1];
    while (small > 0) {
      const int next = counts[0] && loads[0] < loads[1] ? 0 : 1;
      loads[next] += small_cost;
      small -= counts[next];
      end = std::max(end, loads[next]);
    }
    return end;
  };
  int best = fewest;
  for (int tiles = fewest + 1; tile.groups > 1 && tiles <= std::min(all, fewest + fewest / 4); ++tiles)
    if (makespan(tiles) < makespan(best)) best = tiles;
  return best;
}

/// Grid, threads and shared memory; there is no workspace.
inline CallNeeds attention_needs(const AttentionWgmmaShape& tile, const device::AttentionSizes& s,
                                 int multiprocessors) {
  return {.shape = {.grid_x = attention_query_tiles(tile, s.queries, int64_t{s.batch} * s.heads, multiprocessors),
                    .grid_y = s.heads,
                    .grid_z = s.batch,
                    .threads = tile.threads(),
                    .shared_bytes = tile.shared_bytes()}};
}

/// device::AttentionShortTile as a value.
struct AttentionShortShape {
  int depth = 64, value_columns = 64, groups = 3, keys = 272, stages = 2, slots = 2;

  int threads() const { return 128 * groups + 128; }
  int shared_bytes() const {
    const int column_blocks = (depth + 63) / 64, slab = value_columns % 32 ? 16 * (value_columns + 8) * 4 : 0;
    return stages * (2 * column_blocks * keys * 128 + 32) + groups * slots * (column_blocks * 64 * 128 + 16) +
           4 * groups * slab;
  }
  std::string type() const {
    std::string out = "AttentionShortTile<" + std::to_string(depth);
    for (int x : {value_columns, groups, keys, stages, slots}) out += ", " + std::to_string(x);
    return out + ">";
  }
};

/// The tile of device/attention/attention_short.h for a problem, depth 0 if there is none. It takes shallow heads, two
/// of which fit in shared memory, of 129 to 272 keys, or of 65 to 96 if there are more queries than the streaming
/// core's blocks can take at once. With a causal mask the streaming core can skip tiles of keys instead.
inline AttentionShortShape pick_attention_short(const device::AttentionSizes& s, const DeviceFacts& facts) {
  AttentionShortShape tile{.depth = (s.depth + 15) / 16 * 16, .value_columns = wgmma_value_columns(s.depth), .keys = 0};
  // Only the last 32 keys of a tile are masked.
  for (const int keys : {272, 256, 224, 208, 192, 160})
    if (s.keys <= keys && s.keys > keys - 32) tile.keys = keys;
  if (s.keys <= 96 && s.keys > 64 && tiles_of_64(s) > int64_t{3} * facts.multiprocessors) tile.keys = 96;
  const bool fits = tile.shared_bytes() <= facts.shared_bytes;
  return s.depth <= 64 && tile.keys > 0 && !s.causal && fits ? tile : AttentionShortShape{.depth = 0};
}

/// Grid, threads and shared memory; there is no workspace. One block per multiprocessor. A head's tiles of queries are
/// dealt to the number of parts that finishes first.
inline CallNeeds attention_needs(const AttentionShortShape& tile, const device::AttentionSizes& s,
                                 int multiprocessors) {
  const int64_t heads = int64_t{s.batch} * s.heads;
  const int tiles = (s.queries + 63) / 64;
  const auto walkers = [&](int parts) { return std::min<int64_t>(heads, std::max(1, multiprocessors / parts)); };
  // In fifths of the time of one tile of queries: the exposed latency of loading keys and values is one fifth.
  const auto makespan = [&](int parts) {
    const int64_t rounds = (heads + walkers(parts) - 1) / walkers(parts), each = (tiles + parts - 1) / parts;
    return 5 * ((rounds * each + tile.groups - 1) / tile.groups) + rounds;
  };
  int parts = 1;
  for (int more = 2; more <= tiles; ++more)
    if (makespan(more) <= makespan(parts)) parts = more;
  return {.shape = {.grid_x = walkers(parts),
                    .grid_y = parts,
                    .grid_z = 1,
                    .threads = tile.threads(),
                    .shared_bytes = tile.shared_bytes()}};
}

/// device::AttentionGradientTile as a value.
struct AttentionGradientShape {
  int depth = 64, value_columns = 64, groups = 2, keys = 64, stages = 2;
  bool of_keys = false, sums_queries = false;

  int rows() const { return 64 * groups; }
  int threads() const { return 128 * groups + 128; }
  int shared_bytes() const {
    const int column_blocks = (depth + 63) / 64, n = value_columns;
    const int slab = 16 * ((n % 80 == 0 ? 80 : n % 64 == 0 ? 64 : n) + 8) * 4;
    const int group = std::max(2 * column_blocks * 64 * 128, (4 * slab + 1023) / 1024 * 1024);
    return stages * (2 * column_blocks * keys * 128 + (of_keys ? 8 * keys : 0) + 16) + groups * group +
           (sums_queries ? 6 * groups * 8192 + 80 : 0) + 16;
  }
  std::string type() const {
    std::string out = "AttentionGradientTile<" + std::to_string(depth);
    for (int x : {value_columns, groups, keys, stages}) out += ", " + std::to_string(x);
    return out + (!of_keys ? ", false>" : sums_queries ? ", true, true>" : ", true>");
  }
};

/// Which gradients a launch computes: that of queries, those of keys and values, or all.
enum class AttentionGradients { Queries, Keys, All };

/// The gradient tile for heads of `depth`, depth 0 if there is none: the widest streamed tile that fits in the
/// registers of two warpgroups, and as many stages as fit, up to three. All are for heads of 65 to 128 columns.
inline AttentionGradientShape pick_attention_gradient(int depth, AttentionGradients which, const DeviceFacts& facts) {
  const bool of_keys = which != AttentionGradients::Queries, sums_queries = which == AttentionGradients::All;
  AttentionGradientShape tile{.depth = (depth + 15) / 16 * 16,
                              .value_columns = wgmma_value_columns(depth),
                              .of_keys = of_keys,
                              .sums_queries = sums_queries};
  // Sums, scores, the gradient of their weights and both rounded, and 24 registers for the rest.
  const auto registers = [&](int keys) {
    return (of_keys ? 2 : 1) * tile.value_columns / 2 + (of_keys ? 6 : 5) * keys / 4 + 24;
  };
  tile.keys = 0;
  for (const int keys : {32, 64, 128})
    if (registers(keys) <= 248) tile.keys = keys;
  if (tile.value_columns == 0 || tile.keys == 0) return {.depth = 0};
  if (sums_queries && (tile.keys != 64 || depth <= 64 || depth > 128)) return {.depth = 0};
  tile.stages = 3;
  while (tile.stages > 1 && tile.shared_bytes() > facts.shared_bytes) --tile.stages;
  return tile.stages > 1 ? tile : AttentionGradientShape{.depth = 0};
}

/// Grid, threads and shared memory; there is no workspace.
inline CallNeeds attention_needs(const AttentionGradientShape& tile, const device::AttentionSizes& s) {
  const int rows = tile.of_keys ? s.keys : s.queries;
  CallNeeds needs;
  needs.shape = {.grid_x = (rows + tile.rows() - 1) / tile.rows(),
                 .grid_y = tile.of_keys ? s.kv_heads : s.heads,
                 .grid_z = s.batch,
                 .threads = tile.threads(),
                 .shared_bytes = tile.shared_bytes()};
  if (!tile.sums_queries) return needs;
  needs.shape.grid_x *= needs.shape.grid_y * needs.shape.grid_z;
  needs.shape.grid_y = needs.shape.grid_z = 1;
  needs.shape.waits_for_blocks = true;
  needs.counters = 1 + int64_t{s.batch} * s.heads * ((s.queries + tile.keys - 1) / tile.keys);
  return needs;
}

/// device::AttentionDeepTile as a value.
struct AttentionDeepShape {
  int depth = 512, keys = 64;

  static constexpr int kQueries = 128, kValueColumns = 256, kThreads = 384;
  int shared_bytes() const {
    const int key_stages = depth / 128, stages = key_stages + 2;
    return stages * keys * 256 + depth * kQueries * 2 + 16 * stages + 8 * key_stages + 8;
  }
  std::string type() const { return "AttentionDeepTile<" + std::to_string(depth) + ", " + std::to_string(keys) + ">"; }
};

/// The deep tile for heads of `depth`, depth 0 if it does not fit.
inline AttentionDeepShape pick_attention_deep(int depth, const DeviceFacts& facts) {
  const AttentionDeepShape tile{.depth = (depth + 127) / 128 * 128};
  return depth > 256 && tile.shared_bytes() <= facts.shared_bytes ? tile : AttentionDeepShape{.depth = 0};
}

/// Ranges of keys (split-KV) that fill the device with blocks; a range has at least four tiles.
inline int attention_deep_splits(const AttentionDeepShape& tile, const device::AttentionSizes& s, int multiprocessors) {
  const int64_t blocks = int64_t{s.batch} * s.heads * ((s.queries + 127) / 128) * ((s.depth + 255) / 256);
  const int64_t most = std::max(1, (s.keys + tile.keys - 1) / tile.keys / 4);
  return static_cast<int>(std::clamp<int64_t>(multiprocessors / blocks, 1, most));
}

/// For sizes that already hold their splits.
inline CallNeeds attention_needs(const AttentionDeepShape& tile, const device::AttentionSizes& s) {
  const int64_t tiles = int64_t{(s.queries + tile.kQueries - 1) / tile.kQueries} *
                        ((s.depth + tile.kValueColumns - 1) / tile.kValueColumns);
  CallNeeds needs;
  needs.shape = {.grid_x = tiles * s.split.splits,
                 .grid_y = s.heads,
                 .grid_z = s.batch,
                 .threads = tile.kThreads,
                 .shared_bytes = tile.shared_bytes()};
  if (s.split.splits == 1) return needs;
  needs.counters = tiles * s.heads * s.batch;
  // Sums, and four numbers for each of 256 threads.
  needs.workspace_bytes = needs.counters * s.split.splits * (tile.kQueries * tile.kValueColumns + 4 * 256) * 4;
  return needs;
}

/// device::GroupedTile as a value.
struct AttentionGroupedShape {
  int depth = 64, rows = 8, blocks = 1, turns = 1;
  bool cluster = false;
  int stages = 0, chunk_blocks = 1;  ///< of a ChunksTile, a chunk per warp; blocks: per multiprocessor

  static constexpr int kMaxRows = 16, kMaxChunks = 8, kChunk = 128, kThreads = 256;  ///< chunk: of keys
  bool chunks() const { return stages > 0; }
  int segment_keys() const { return chunks() ? kMaxChunks * kChunk : kChunk * blocks * turns; }
  bool meets_in_memory() const { return blocks > 1 && !cluster; }
  /// Blocks per multiprocessor for which there are registers.
  int resident() const {
    if (chunks()) return chunk_blocks;
    return depth > 64 || rows > 8 || meets_in_memory() || turns > 1 ? 2 : 3;
  }
  /// How many blocks run at once over caches of `segments` segments. A cluster's blocks need places side by side, and
  /// of a single segment half are expected to have no keys: larger clusters then find places less often.
  int64_t places(int multiprocessors, int64_t segments) const {
    const int quarters = !cluster || segments > 1 || blocks <= 2 ? 4 : blocks <= 4 ? 3 : 2;
    return int64_t{resident()} * multiprocessors * quarters / 4;
  }
  int shared_bytes() const {
    if (chunks()) return kMaxChunks * (stages * 32 * depth * 2 + 20 * rows) + 16 * depth * 2 + 16;
    const int units = rows * depth / 32, owned = (units + blocks - 1) / blocks;
    const int found = meets_in_memory() ? 0 : blocks * turns * (owned * 32 + 5 * rows);
    return 4 * ((turns > 1 ? 2 : 1) * kChunk * depth / 2 + rows * ((kChunk + 8) / 2 + 8 + 4 * 8 + 1) + found + 4);
  }
  std::string type() const {
    const std::string sizes = std::to_string(depth) + ", " + std::to_string(rows) + ", ";
    if (chunks()) return "ChunksTile<" + sizes + std::to_string(stages) + ", " + std::to_string(chunk_blocks) + ">";
    return "GroupedTile<" + sizes + std::to_string(blocks) + ", " + std::to_string(turns) +
           (cluster ? ", true>" : ", false>");
  }
};

/// The grouped tile for `rows` queries that share a head of keys, over all heads and positions; depth 0 if there is
/// none.
inline AttentionGroupedShape pick_attention_grouped(int64_t rows, int64_t depth) {
  if (!grouped_depth(depth) || rows < 1 || rows > AttentionGroupedShape::kMaxRows) return {.depth = 0};
  return {.depth = static_cast<int>(depth), .rows = rows > 8 ? 16 : 8};
}
/// The tile with a chunk per warp for the same rows: with two blocks per multiprocessor if they fit, and three stages
/// if these do. Stages 0 if there is no room.
inline AttentionGroupedShape chunk_per_warp(AttentionGroupedShape tile, const DeviceFacts& facts) {
  tile = {.depth = tile.depth, .rows = tile.rows};
  for (tile.stages = 3; tile.stages > 1 && tile.shared_bytes() > facts.shared_bytes;) --tile.stages;
  if (tile.stages < 2) tile.stages = 0;
  if (2 * (tile.shared_bytes() + 1024) <= facts.shared_bytes + 1024) tile.chunk_blocks = 2;
  return tile;
}
/// The tile for a cache of `s.keys`: as many blocks per segment as have a chunk of keys (more would be idle); fewer,
/// which take several chunks in turn, if not all of them would run at once; if that would be four or more, a block per
/// segment with a chunk per warp. The result's bits are the same. Of several segments, half are expected to have keys;
/// the others' blocks end at once, while those of a cluster stay. `even`: keys and values of a chunk are equally far
/// apart.
inline AttentionGroupedShape over_keys(AttentionGroupedShape tile, const device::AttentionSizes& s,
                                       const DeviceFacts& facts, bool even) {
  const bool clusters = facts.arch == "sm_90a";
  while (tile.blocks < tile.kMaxChunks && tile.blocks * tile.kChunk < s.keys) tile.blocks *= 2;
  tile.cluster = clusters && tile.blocks > 1;
  const int64_t segments = (s.keys + tile.segment_keys() - 1) / tile.segment_keys();
  const int64_t busy = int64_t{s.batch} * s.kv_heads * ((segments + 1) / 2);
  while (tile.blocks > 1 && busy * tile.blocks > tile.places(facts.multiprocessors, segments)) {
    AttentionGroupedShape fewer = tile;
    fewer.blocks /= 2, fewer.turns *= 2;
    fewer.cluster = clusters && fewer.blocks > 1;
    if (fewer.shared_bytes() > facts.shared_bytes) break;
    tile = fewer;
  }
  const AttentionGroupedShape by_warps = chunk_per_warp(tile, facts);
  return even && tile.turns >= 4 && by_warps.chunks() ? by_warps : tile;
}

/// `s.keys`: the capacity.
inline CallNeeds attention_needs(const AttentionGroupedShape& tile, const device::AttentionSizes& s) {
  const int segments = std::max(1, (s.keys + tile.segment_keys() - 1) / tile.segment_keys());
  CallNeeds needs;
  needs.shape = {.grid_x = segments * tile.blocks,
                 .grid_y = s.kv_heads,
                 .grid_z = s.batch,
                 .threads = AttentionGroupedShape::kThreads,
                 .shared_bytes = tile.shared_bytes(),
                 .cluster = tile.cluster ? tile.blocks : 1,
                 .starts_next = true};
  const int64_t heads = int64_t{s.kv_heads} * s.batch;
  needs.counters = heads * (segments + tile.blocks + 1);
  if (tile.meets_in_memory())
    needs.workspace_bytes = heads * segments * tile.blocks * tile.turns * tile.rows * (tile.depth + 5) * 4;
  if (segments > 1) needs.workspace_bytes += heads * segments * 6 * tile.rows * tile.depth * 4;
  return needs;
}

/// Strides of tokens, heads and batch entries of q, k or v, in elements of 2 bytes: multiples of 8.
struct HeadStrides {
  int64_t token, head, batch;
};
/// An operand of a wgmma core, [batch][heads][tokens][depth], starting at `address`. Boxes have 64 columns, zero-filled
/// beyond the depth, and `box_tokens` tokens: 64 for q, the core's keys for k and v.
inline TensorBox head_box(const void* address, const HeadStrides& strides, int batch, int heads, int tokens, int depth,
                          int box_tokens) {
  return {.address = const_cast<void*>(address),
          .element_bytes = 2,
          .rank = 4,
          .extent = {depth, tokens, heads, batch},
          .stride_bytes = {2, strides.token * 2, strides.head * 2, strides.batch * 2},
          .box = {64, box_tokens, 1, 1},
          .swizzle_bytes = 128};
}

}  // namespace tenon::cuda
