// Attention of few keys with wgmma, y = softmax(scale q k^T) v head by head: all keys of a head fit in shared memory,
// and the scores of a query with all of them in registers. Nothing streams: one maximum, one sum, no rescaling.
//
//   one warp: keys, values and tiles of 64 queries of one head after the other --TMA--> shared memory
//   kGroups warpgroups, a tile each in turns:
//     scores of the first, of the second part of the keys --wgmma--> registers --softmax--> weights, rounded to T
//     sums = weights * values, of the first part while the second's weights are computed --slabs--> the epilogue
//
// A block walks over heads, and the copies for the next begin as soon as their places are free. What overlaps products
// with softmax are the other warpgroups of the multiprocessor: of this block, or of another.
//
// grid.x blocks take every grid.x-th head of the batch; grid.y: parts that a head's tiles of queries are dealt to.
// Operands and the epilogue are attention_wgmma.h's; boxes of k and v hold half of kKeys tokens. kKeys - 32 < keys <=
// kKeys. A NaN reaches the results of all queries that see it, and in v, under a causal mask, all of the head.
#pragma once
#include "tenon/device/attention_wgmma.h"

namespace tenon::device {

/// A part of a tile's keys.
template <int kKeys_, int kPolynomial_>
struct SomeKeys {
  static constexpr int kKeys = kKeys_, kPolynomial = kPolynomial_, kWarpM = 16;
};

/// kKeys_: all of them. kStages_: heads whose keys and values have places; kSlots_: tiles of queries a warpgroup that
/// have. kBlocks_: blocks that share a multiprocessor. kHeld_: whether the queries go to registers.
template <int kDepth_, int kValueColumns_, int kGroups_, int kKeys_, int kStages_, int kSlots_, int kBlocks_,
          int kPolynomial_, bool kHeld_, bool kAhead_>
struct AttentionShortTile {
  static constexpr int kDepth = kDepth_, kValueColumns = kValueColumns_, kGroups = kGroups_, kKeys = kKeys_;
  static constexpr int kStages = kStages_, kSlots = kSlots_, kBlocks = kBlocks_, kPolynomial = kPolynomial_;
  static constexpr bool kHeld = kHeld_, kAhead = kAhead_;
  static constexpr int kFirstKeys = kKeys < 192 ? kKeys / 2 : kKeys < 208 ? 96 : 128, kLastKeys = kKeys - kFirstKeys;
  using First = SomeKeys<kFirstKeys, kPolynomial>;
  using Last = SomeKeys<kLastKeys, kPolynomial>;
  static constexpr int kSumWarps = 4 * kGroups, kThreads = 32 * kSumWarps + 128;
  static constexpr int kEqualRegisters = 512 / kBlocks / (kGroups + 1) / 8 * 8;
  static constexpr int kMostRegisters = (kEqualRegisters * (kGroups + 1) - 24) / kGroups / 8 * 8;
  static constexpr int kRegisters = kMostRegisters < 240 ? kMostRegisters : 240;
  // What MmaSums and mma_store want to know.
  static constexpr int kWarpM = 16, kWarpN = kValueColumns;
  static constexpr int kSlabColumns = kValueColumns % 80 == 0 ? 80 : kValueColumns % 64 == 0 ? 64 : kWarpN;
  static constexpr int kSlabBytes = 16 * (kSlabColumns + 8) * 4;

  static constexpr int kColumnBlocks = (kDepth + 63) / 64;  ///< of 64 columns, of q, k and v
  static constexpr int kKeyBlock = kKeys * 128, kQueryBlock = 64 * 128;
  static constexpr int kTileBytes = kColumnBlocks * kKeyBlock, kStageBytes = 2 * kTileBytes;  ///< keys; and values
  static constexpr int kQueryBytes = kColumnBlocks * kQueryBlock;
  static constexpr int kQueriesAt = kStages * kStageBytes, kSlabsAt = kQueriesAt + kGroups * kSlots * kQueryBytes;
  static constexpr int kBarriersAt = kSlabsAt + kSumWarps * kSlabBytes;
  static constexpr int kSharedBytes = kBarriersAt + 32 * kStages + 16 * kGroups * kSlots;
  static_assert(kDepth % 16 == 0 && kFirstKeys % 16 == 0 && kLastKeys >= 32 && kValueColumns <= 64 * kColumnBlocks);
};

/// One head of a batch, and the tiles of its queries that this block has.
struct ShortHead {
  int batch, head, first, tiles;
  DEV ShortHead(const AttentionSizes& s, int index) : batch(index / s.heads), head(index % s.heads) {
    const int all = (s.queries + 63) / 64;
    first = all * block_y() / grid_y();
    tiles = all * (block_y() + 1) / grid_y() - first;
  }
};

/// The place of a head's keys and values, and its barriers: keys and values come, and are done with, apart.
template <class Tile>
struct ShortStage {
  uint32_t shared = shared_address(shared_memory());
  int stage = 0, phase = 0;
  DEV uint32_t keys() const { return shared + stage * Tile::kStageBytes; }
  DEV uint32_t values() const { return keys() + Tile::kTileBytes; }
  DEV uint32_t keys_full() const { return shared + Tile::kBarriersAt + 32 * stage; }
  DEV uint32_t keys_empty() const { return keys_full() + 8; }
  DEV uint32_t values_full() const { return keys_full() + 16; }
  DEV uint32_t values_empty() const { return keys_full() + 24; }
  DEV void advance() {
    if (++stage == Tile::kStages) stage = 0, phase ^= 1;
  }
};

/// The place of tile `number` of this block's tiles of queries.
template <class Tile>
struct ShortSlot {
  int slot, phase;
  uint32_t shared = shared_address(shared_memory());
  DEV explicit ShortSlot(int number) {
    const int of_group = number / Tile::kGroups;
    slot = number % Tile::kGroups * Tile::kSlots + of_group % Tile::kSlots;
    phase = of_group / Tile::kSlots & 1;
  }
  DEV uint32_t queries() const { return shared + Tile::kQueriesAt + slot * Tile::kQueryBytes; }
  DEV uint32_t full() const { return shared + Tile::kBarriersAt + 32 * Tile::kStages + 16 * slot; }
  DEV uint32_t empty() const { return full() + 8; }
};

/// The copying thread.
template <class Tile, class Q, class K, class V, class Params>
DEV void short_produce(const Params& p) {
  const AttentionSizes& s = p.sizes;
  ShortStage<Tile> to;
  int number = 0;
  NO_UNROLL for (int index = block_x(); index < s.batch * s.heads; index += grid_x()) {
    const ShortHead at(s, index);
    auto load = [&](uint32_t shared, int block_bytes, const TensorMap& map, uint32_t full, int token, int of_head) {
      UNROLL for (int block = 0; block < Tile::kColumnBlocks; ++block)
          tma_load(shared + block * block_bytes, map, full, 64 * block, token, of_head, at.batch);
    };
    auto load_rows = [&](uint32_t shared, const TensorMap& map, uint32_t full, uint32_t empty) {
      constexpr int kHalf = Tile::kKeys / 2;
      mbarrier_wait(empty, to.phase ^ 1);
      mbarrier_arrive_expecting(full, Tile::kTileBytes);
      UNROLL for (int half = 0; half < 2; ++half)
          load(shared + half * kHalf * 128, Tile::kKeyBlock, map, full, half * kHalf, at.head / (s.heads / s.kv_heads));
    };
    load_rows(to.keys(), K::map(p), to.keys_full(), to.keys_empty());
    NO_UNROLL for (int tile = 0; tile < at.tiles; ++tile) {
      const ShortSlot<Tile> slot(number + tile);
      mbarrier_wait(slot.empty(), slot.phase ^ 1);
      mbarrier_arrive_expecting(slot.full(), Tile::kQueryBytes);
      load(slot.queries(), Tile::kQueryBlock, Q::map(p), slot.full(), 64 * (at.first + tile), at.head);
      if (tile == 0) load_rows(to.values(), V::map(p), to.values_full(), to.values_empty());
    }
    number += at.tiles;
    to.advance();
  }
}

DEV void leave(uint32_t empty) {
  if (lane() == 0) mbarrier_arrive(empty);
}

/// A warpgroup's tiles one after the other.
template <class Tile>
struct ShortTiles {
  const AttentionSizes& s;
  ShortStage<Tile> stage = {};
  int index = block_x(), number = 0;  ///< of the head, and of its first tile
  ShortHead at;
  int tile;

  DEV explicit ShortTiles(const AttentionSizes& sizes) : s(sizes), at(sizes, index), tile(warp_uniform() / 4) {
    skip();
  }
  DEV bool there() const { return index < s.batch * s.heads; }
  DEV bool last() const { return tile + Tile::kGroups >= at.tiles; }  ///< of the head
  DEV int query() const { return 64 * (at.first + tile); }
  DEV ShortSlot<Tile> slot() const { return ShortSlot<Tile>(number + tile); }
  DEV void advance() {
    tile += Tile::kGroups;
    if (tile >= at.tiles) head(), skip();
  }

 private:
  DEV void head() {
    number += at.tiles, tile -= at.tiles;
    stage.advance();
    index += grid_x();
    at = ShortHead(s, index);
  }
  /// Heads of which the warpgroup has nothing: all others may be done with them.
  DEV void skip() {
    if constexpr (Tile::kGroups > 1) {
      while (there() && tile >= at.tiles) {
        mbarrier_wait(stage.keys_full(), stage.phase);
        leave(stage.keys_empty());
        mbarrier_wait(stage.values_full(), stage.phase);
        leave(stage.values_empty());
        head();
      }
    }
  }
};

/// The scores of a tile of queries with all keys, and their softmax.
template <class Tile>
struct ShortScores {
  using First = typename Tile::First;
  using Last = typename Tile::Last;
  AttentionScores<First> first;
  AttentionScores<Last> last;
  HeldQueries<Tile> queries;
  float top[2], total[1][2];  ///< of a lane's two rows
  float scale;                ///< of scores that are exponents of 2
  int rows;                   ///< of the warp's 16, that there are

  /// Starts the scores with the first part of the keys.
  template <class T>
  DEV void start(const ShortTiles<Tile>& tiles) {
    queries = HeldQueries<Tile>(tiles.slot().queries());
    wgmma_fence();
    queries.template multiply<T>(first, tiles.stage.keys());
  }
  /// Waits for them, computes the others, and finds the highest of each row.
  template <class T>
  DEV void finish(const ShortTiles<Tile>& tiles) {
    const AttentionSizes& s = tiles.s;
    const int query = tiles.query() - warp_uniform() / 4 * 64;
    scale = s.scale * 1.4426950408889634f;
    rows = s.queries - tiles.query() - warp_uniform() % 4 * 16;
    UNROLL for (int half = 0; half < 2; ++half) total[0][half] = 0.0f, top[half] = first.minus_infinity();
    wgmma_wait<0>();
    wgmma_settle(first.v[0]);
    wgmma_fence();
    queries.template multiply<T>(last, tiles.stage.keys() + Tile::kFirstKeys * 128);
    if (s.causal) first.mask(s, query, 0);
    raise(first);
    wgmma_wait<0>();
    wgmma_settle(last.v[0]);
    leave(tiles.slot().empty());
    if (tiles.last()) leave(tiles.stage.keys_empty());
    s.causal ? last.mask(s, query, Tile::kFirstKeys)
             : last.template mask<(Tile::kLastKeys - 32) / 8>(s, query, Tile::kFirstKeys);
    raise(last);
    UNROLL for (int half = 0; half < 2; ++half) {
      top[half] = highest_of_row(top[half]);
      if (top[half] == first.minus_infinity()) top[half] = 0.0f;
    }
  }
  /// Scores to weights. Rows that there are not keep their scores: nobody sees what becomes of them.
  template <class T, class Keys>
  DEV void weigh(AttentionScores<Keys>& scores, AttentionWeights<Keys>& weights) {
    UNROLL for (int half = 0; half < 2; ++half) if (rows > 8 * half) total[0][half] =
        weigh_scores(scores, 0, half, scale, -top[half] * scale, total[0][half]);
    weights.round(T{}, scores);
  }

 private:
  template <class Keys>
  DEV void raise(const AttentionScores<Keys>& scores) {
    UNROLL for (int half = 0; half < 2; ++half) if (rows > 8 * half) top[half] =
        highest_score(scores, 0, half, top[half]);
  }
};

/// All tiles of a warpgroup. kAhead: the scores of the next are under way while the results of one are finished.
template <class Tile, class T, class Epilogue, class Params>
DEV void short_consume(const Params& p) {
  const AttentionSizes& s = p.sizes;
  const WarpPlace place{warp() % 4 * 16, 0,
                        reinterpret_cast<float*>(shared_memory() + Tile::kSlabsAt + warp_uniform() * Tile::kSlabBytes)};
  ShortTiles<Tile> at(s);
  ShortScores<Tile> scores;
  MmaSums<Tile> sums;
  auto ready = [](const ShortTiles<Tile>& tiles) {
    mbarrier_wait(tiles.stage.keys_full(), tiles.stage.phase);
    mbarrier_wait(tiles.slot().full(), tiles.slot().phase);
  };
  if (!at.there()) return;
  ready(at);
  scores.template start<T>(at);
  NO_UNROLL while (true) {
    AttentionWeights<typename Tile::First> first;
    AttentionWeights<typename Tile::Last> last;
    const uint32_t values = at.stage.values();
    scores.template finish<T>(at);
    scores.template weigh<T>(scores.first, first);
    mbarrier_wait(at.stage.values_full(), at.stage.phase);
    wgmma_fence();
    add_values<Tile, T>(sums, first, values, true);
    scores.template weigh<T>(scores.last, last);
    wgmma_fence();
    add_values<Tile, T>(sums, last, values + Tile::kFirstKeys * 128);
    const bool end = at.last();
    const uint32_t values_empty = at.stage.values_empty();
    const int query = at.query(), q_row = at.index * s.queries, rows = scores.rows;
    const float total[1][2] = {{scores.total[0][0], scores.total[0][1]}};
    at.advance();
    if constexpr (Tile::kAhead) {
      // Behind the last tile: scores that nobody wants, of what lies there.
      if (at.there()) ready(at);
      scores.template start<T>(at);
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    wgmma_settle(sums.v[0]);
    if (end) leave(values_empty);
    divide_sums(sums, total);
    if (rows > 0)
      mma_store<Tile, Epilogue>(
          p, sums, place, [&](int i) { return query + i < s.queries ? q_row + query + i : -1; }, 0, s.depth);
    if (!at.there()) break;
    if constexpr (!Tile::kAhead) {
      ready(at);
      scores.template start<T>(at);
    }
  }
  wgmma_wait<0>();
}

template <class Tile, class Q, class K, class V, class Epilogue, class Params>
DEV void attention_short(const Params& p) {
  static_assert(Epilogue::kLanes == 1);
  if (thread_index() == 0) {
    ShortStage<Tile> ring;
    for (; ring.phase == 0; ring.advance()) {
      mbarrier_init(ring.keys_full(), 1);
      mbarrier_init(ring.keys_empty(), Tile::kSumWarps);
      mbarrier_init(ring.values_full(), 1);
      mbarrier_init(ring.values_empty(), Tile::kSumWarps);
    }
    for (int number = 0; number < Tile::kGroups * Tile::kSlots; ++number) {
      mbarrier_init(ShortSlot<Tile>(number).full(), 1);
      mbarrier_init(ShortSlot<Tile>(number).empty(), 4);
    }
    mbarrier_init_fence();
  }
  sync_block();
  griddep_wait();
  griddep_launch();
  if (warp_uniform() >= Tile::kSumWarps) {
    registers_decrease<24>();
    if (thread_index() == 32 * Tile::kSumWarps) short_produce<Tile, Q, K, V>(p);
  } else {
    registers_increase<Tile::kRegisters>();
    short_consume<Tile, typename Q::T, Epilogue>(p);
  }
}

}  // namespace tenon::device
