// Streaming-softmax attention with wgmma for heads too deep for attention_wgmma.h: AttentionSizes, scale > 0.
//
//   one warp: boxes of q, once, then of k and v --TMA--> shared memory: a tile of keys and a tile of values, in stages
//     of 128 columns that are refilled as soon as their products are done
//   two warpgroups, 64 queries each:
//     scores of tile i --wgmma, stage by stage--> registers --softmax--> weights, rounded to T    while the tensor
//     cores still do sums += weights * values of tile i - 1, weights from registers
//
// A block has kValueColumns columns of the result; another block recomputes the same scores for other columns.
// Split-KV: keys are divided into sizes.split.splits ranges of tiles, one per block; sums of 128 queries and their
// softmax state are combined in the workspace, in the order of keys.
//
// grid.x = tiles of queries * parts of the columns * splits, grid.y = heads, grid.z = batch; Tile::kThreads,
// Tile::kSharedBytes. Params, Q, K, V, Epilogue and NaNs as in attention_wgmma.h.
#pragma once
#include "tenon/backend/cuda/device/attention/attention_wgmma.h"

namespace tenon::device {

/// 128 queries x kKeys_ keys at a time. kDepth_: the depth rounded up to 128.
template <int kDepth_, int kKeys_>
struct AttentionDeepTile {
  static constexpr int kDepth = kDepth_, kKeys = kKeys_;
  static constexpr int kGroups = 2, kQueries = 64 * kGroups;
  static constexpr int kSumWarps = 4 * kGroups, kSumThreads = 32 * kSumWarps, kThreads = kSumThreads + 128;
  static constexpr int kStageColumns = 128, kKeyStages = kDepth / kStageColumns;
  static constexpr int kValueStages = 2, kValueColumns = kValueStages * kStageColumns;
  static constexpr int kStages = kKeyStages + kValueStages;  ///< keys first
  // What MmaSums and mma_store need, for the columns of one stage.
  static constexpr int kWarpM = 16, kWarpN = kStageColumns, kSlabColumns = 64;
  static constexpr int kSlabBytes = 16 * (kSlabColumns + 8) * 4;

  static constexpr int kKeyBlock = kKeys * 128, kQueryBlock = 64 * 128;  ///< of 64 columns
  static constexpr int kStageBytes = 2 * kKeyBlock;
  /// A warpgroup's queries, later its slabs.
  static constexpr int kGroupBytes = 2 * kKeyStages * kQueryBlock;
  static constexpr int kGroupsAt = kStages * kStageBytes, kBarriersAt = kGroupsAt + kGroups * kGroupBytes;
  static constexpr int kCameAt = kBarriersAt + 16 * kStages + 8 * kKeyStages, kSharedBytes = kCameAt + 8;
  static_assert(kDepth % kStageColumns == 0 && kKeys % 16 == 0 && kGroupBytes >= 4 * kSlabBytes);
};

/// A block's part of the problem: its place, its tiles of keys, and the blocks to combine with.
template <class Tile>
struct DeepPlace : AttentionPlace<Tile> {
  int split, tile;  ///< tile: number in the grid; its splits are combined
  TileRange keys;

  DEV explicit DeepPlace(const AttentionSizes& s, int block = block_x())
      : AttentionPlace<Tile>(s, block / s.split.splits, grid_x() / s.split.splits),
        split(block % s.split.splits),
        tile((block_z() * s.heads + block_y()) * (grid_x() / s.split.splits) + block / s.split.splits),
        keys(this->key_tiles, s.split.splits, split) {}
};

/// A stage's buffer and mbarriers, and the queries' mbarriers, one per 128 columns.
template <class Tile>
struct DeepStages {
  uint32_t shared = shared_address(shared_memory());
  DEV uint32_t rows(int stage) const { return shared + stage * Tile::kStageBytes; }
  DEV uint32_t full(int stage) const { return shared + Tile::kBarriersAt + 16 * stage; }
  DEV uint32_t empty(int stage) const { return full(stage) + 8; }
  DEV uint32_t queries_full(int stage) const { return full(Tile::kStages) + 8 * stage; }
};

/// The producer thread. Keys are a tile ahead of values.
template <class Tile, class Q, class K, class V, class Params>
DEV void deep_produce(const Params& p) {
  const DeepPlace<Tile> at(p.sizes);
  const int head = block_y(), kv_head = block_y() / (p.sizes.heads / p.sizes.kv_heads), batch = block_z();
  const DeepStages<Tile> stages;
  auto load = [&](const TensorMap& map, int stage, int column, int tile) {
    mbarrier_wait(stages.empty(stage), (tile & 1) ^ 1);
    mbarrier_arrive_expecting(stages.full(stage), Tile::kStageBytes);
    UNROLL for (int block = 0; block < 2; ++block)
        tma_load(stages.rows(stage) + block * Tile::kKeyBlock, map, stages.full(stage), column + 64 * block,
                 (at.keys.first + tile) * Tile::kKeys, kv_head, batch);
  };
  auto load_queries = [&](int stage) {
    const uint32_t to = stages.shared + Tile::kGroupsAt + 2 * stage * Tile::kQueryBlock;
    mbarrier_arrive_expecting(stages.queries_full(stage), Tile::kGroups * 2 * Tile::kQueryBlock);
    UNROLL for (int i = 0; i < 2 * Tile::kGroups; ++i)
        tma_load(to + i / 2 * Tile::kGroupBytes + i % 2 * Tile::kQueryBlock, Q::map(p), stages.queries_full(stage),
                 stage * Tile::kStageColumns + i % 2 * 64, at.query + i / 2 * 64, head, batch);
  };
  NO_UNROLL for (int tile = 0; tile <= at.keys.count; ++tile) {
    NO_UNROLL for (int stage = 0; stage < Tile::kKeyStages && tile < at.keys.count; ++stage) {
      if (tile == 0) load_queries(stage);
      load(K::map(p), stage, stage * Tile::kStageColumns, tile);
    }
    NO_UNROLL for (int stage = 0; stage < Tile::kValueStages && tile > 0; ++stage)
        load(V::map(p), Tile::kKeyStages + stage, at.column + stage * Tile::kStageColumns, tile - 1);
  }
}

/// A warpgroup's sums, and the state that leads to them.
template <class Tile, class T>
struct DeepGroup {
  MmaSums<Tile> sums[Tile::kValueStages] = {};
  StreamingSoftmax<Tile> softmax;
  AttentionWeights<Tile> weights;
  DeepStages<Tile> stages;

  DEV explicit DeepGroup(float scale) : softmax(scale) {}

  DEV void release(int stage) const { leave(stages.empty(stage)); }
  /// Starts scores = q k^T, and releases all stages but the last. `tile`: of the block's.
  DEV void multiply(AttentionScores<Tile>& scores, int tile) const {
    const uint32_t queries = stages.shared + Tile::kGroupsAt + warp_uniform() / 4 * Tile::kGroupBytes;
    UNROLL for (int stage = 0; stage < Tile::kKeyStages; ++stage) {
      if (tile == 0) mbarrier_wait(stages.queries_full(stage), 0);
      mbarrier_wait(stages.full(stage), tile & 1);
      const uint64_t a = wgmma_rows(queries + 2 * stage * Tile::kQueryBlock), b = wgmma_rows(stages.rows(stage));
      wgmma_fence();
      // A descriptor counts in units of 16 bytes.
      UNROLL for (int k_block = 0; k_block < Tile::kStageColumns / 16; ++k_block)
          attention_products(T{}, scores.v[0], a + k_block / 4 * (Tile::kQueryBlock / 16) + k_block % 4 * 2,
                             b + k_block / 4 * (Tile::kKeyBlock / 16) + k_block % 4 * 2, stage + k_block > 0);
      wgmma_commit();
      if (stage == 0) continue;
      wgmma_wait<1>();
      release(stage - 1);
    }
  }
  /// Starts sums += weights * values for a tile of the block, one group of products per stage.
  DEV void add_values(int tile) {
    UNROLL for (int stage = 0; stage < Tile::kValueStages; ++stage) {
      mbarrier_wait(stages.full(Tile::kKeyStages + stage), tile & 1);
      const uint64_t b = wgmma_columns(stages.rows(Tile::kKeyStages + stage), Tile::kKeyBlock);
      wgmma_fence();
      UNROLL for (int k_block = 0; k_block < Tile::kKeys / 16; ++k_block)
          held_products<true>(T{}, sums[stage].v[0], weights.f[k_block][0], b + k_block * (2048 / 16), true);
      wgmma_commit();
    }
  }
  DEV void settle_values() {
    wgmma_wait<0>();
    UNROLL for (int stage = 0; stage < Tile::kValueStages; ++stage) wgmma_settle(sums[stage].v[0]);
  }
  DEV void weigh(const AttentionSizes& s, const DeepPlace<Tile>& at, AttentionScores<Tile>& scores, int tile) {
    wgmma_settle(scores.v[0]);
    release(Tile::kKeyStages - 1);
    const int key = (at.keys.first + tile) * Tile::kKeys;
    if (key + Tile::kKeys > at.seen_by_first) scores.mask(s, at.query, key);
    softmax.weigh(scores);
  }

  /// All tiles of keys of the block, at least one.
  DEV void attend(const AttentionSizes& s, const DeepPlace<Tile>& at) {
    {
      AttentionScores<Tile> scores;
      multiply(scores, 0);
      wgmma_wait<0>();
      weigh(s, at, scores, 0);
      weights.round(T{}, scores);
    }
    NO_UNROLL for (int tile = 1; tile < at.keys.count; ++tile) {
      AttentionScores<Tile> scores;
      multiply(scores, tile);
      add_values(tile - 1);
      wgmma_wait<Tile::kValueStages>();
      weigh(s, at, scores, tile);
      // The parity depends on all weights: otherwise the assembler would move the wait for the products before them.
      if (tile + 1 < at.keys.count) mbarrier_wait(stages.full(0), ((tile + 1) & 1) ^ softmax.negative());
      settle_values();
      UNROLL for (int stage = 0; stage < Tile::kValueStages; ++stage) {
        release(Tile::kKeyStages + stage);
        softmax.rescale(sums[stage]);
      }
      weights.round(T{}, scores);
    }
    add_values(at.keys.count - 1);
    settle_values();
  }
};

/// Combines split-KV: gives all sums and softmax state to the last block of the tile to arrive. False in the others.
template <class Tile, class T>
DEV bool deep_meet(const SplitK& split, const DeepPlace<Tile>& at, DeepGroup<Tile, T>& group, uint32_t* came) {
  using Fragment = Frag<float, 4>;
  constexpr int kColumns = MmaSums<Tile>::kColumns, kFragments = Tile::kValueStages * kColumns;
  StreamingSoftmax<Tile>& softmax = group.softmax;
  auto fragments = [&](int part) {
    return reinterpret_cast<Fragment*>(split.workspace) +
           static_cast<int64_t>(at.tile * split.splits + part) * ((kFragments + 1) * Tile::kSumThreads) +
           thread_index();
  };
  auto sums_of = [&](int i) -> float(&)[4] { return group.sums[i / kColumns].v[0][i % kColumns]; };
  Fragment* mine = fragments(at.split);
  UNROLL for (int i = 0; i < kFragments; ++i) {
    const float(&v)[4] = sums_of(i);
    mine[i * Tile::kSumThreads] = Fragment{{v[0], v[1], v[2], v[3]}};
  }
  mine[kFragments * Tile::kSumThreads] =
      Fragment{{softmax.top[0][0], softmax.top[0][1], softmax.total[0][0], softmax.total[0][1]}};
  fence_device();
  sync_named(1, Tile::kSumThreads);
  if (thread_index() == 0) *came = atomic_add(split.counters + at.tile, 1);
  sync_named(1, Tile::kSumThreads);
  if (*came != static_cast<uint32_t>(split.splits - 1)) return false;
  if (thread_index() == 0) split.counters[at.tile] = 0;
  fence_device();
  NO_UNROLL for (int part = 0; part < split.splits; ++part) UNROLL for (int half = 0; half < 2; ++half)
      softmax.top[0][half] = max_number(softmax.top[0][half], fragments(part)[kFragments * Tile::kSumThreads].v[half]);
  UNROLL for (MmaSums<Tile>& sums : group.sums) sums = {};
  softmax.total[0][0] = softmax.total[0][1] = 0.0f;
  NO_UNROLL for (int part = 0; part < split.splits; ++part) {
    const Fragment* other = fragments(part);
    const Fragment tops = other[kFragments * Tile::kSumThreads];
    UNROLL for (int half = 0; half < 2; ++half) {
      softmax.keep[0][half] = softmax.kept(tops.v[half], softmax.top[0][half]);
      softmax.total[0][half] += tops.v[2 + half] * softmax.keep[0][half];
    }
    UNROLL for (int i = 0; i < kFragments; ++i) {
      const Fragment fragment = other[i * Tile::kSumThreads];
      UNROLL for (int e = 0; e < 4; ++e) sums_of(i)[e] += fragment.v[e] * softmax.keep[0][e / 2];
    }
  }
  return true;
}

/// The two consumer warpgroups.
template <class Tile, class T, class Epilogue, class Params>
DEV void deep_consume(const Params& p) {
  const AttentionSizes& s = p.sizes;
  DeepGroup<Tile, T> group(s.scale);
  if (const DeepPlace<Tile> mine(s); mine.keys.count > 0) group.attend(s, mine);
  const DeepPlace<Tile> at(s, anew(block_x()));  // recomputed: registers are scarce until here
  unsigned char* shared = shared_memory();
  uint32_t* came = reinterpret_cast<uint32_t*>(shared + Tile::kBarriersAt + 16 * Tile::kStages + 8 * Tile::kKeyStages);
  if (s.split.splits > 1 && !deep_meet(s.split, at, group, came)) return;
  const int index = warp_uniform() / 4;
  sync_named(8 + index, 128);  // the whole warpgroup is done with its queries: slabs reuse their memory
  const WarpPlace place{
      warp() * 16, 0,
      reinterpret_cast<float*>(shared + Tile::kGroupsAt + index * Tile::kGroupBytes + warp() % 4 * Tile::kSlabBytes)};
  const auto row_of = [&](int i) { return at.query + i < s.queries ? at.q_row + at.query + i : -1; };
  UNROLL for (int stage = 0; stage < Tile::kValueStages; ++stage) {
    group.softmax.divide(group.sums[stage]);
    const int column = at.column + stage * Tile::kStageColumns;
    if (column < s.depth) mma_store<Tile, Epilogue>(p, group.sums[stage], place, row_of, column, s.depth);
  }
}

template <class Tile, class Q, class K, class V, class Epilogue, class Params>
DEV void attention_deep(const Params& p) {
  static_assert(Epilogue::kLanes == 1);
  if (thread_index() == 0) {
    const DeepStages<Tile> stages;
    UNROLL for (int stage = 0; stage < Tile::kStages; ++stage) {
      mbarrier_init(stages.full(stage), 1);
      mbarrier_init(stages.empty(stage), Tile::kSumWarps);
    }
    UNROLL for (int stage = 0; stage < Tile::kKeyStages; ++stage) mbarrier_init(stages.queries_full(stage), 1);
    mbarrier_init_fence();
  }
  sync_block();
  griddep_wait();
  griddep_launch();
  // With 384 threads there are 168 registers each; the producer needs few.
  if (warp_uniform() >= Tile::kSumWarps) {
    registers_decrease<24>();
    if (thread_index() == Tile::kSumThreads) deep_produce<Tile, Q, K, V>(p);
  } else {
    registers_increase<240>();
    deep_consume<Tile, typename Q::T, Epilogue>(p);
  }
}

}  // namespace tenon::device
