// Attention over few keys with wgmma, y = softmax(scale q k^T) v for each head: all keys and values of a head stay in
// shared memory while its queries stream by.
//
//   one warp: keys, values and tiles of 64 queries, head after head --TMA--> shared memory
//   kGroups warpgroups, taking tiles in turn, part by part of the keys:
//     scores of part i --wgmma--> registers --softmax--> weights, rounded to T    while the tensor cores still do
//     sums += weights * values of part i - 1
//   and sums --shuffles--> the epilogue, while the first scores of the next tile are computed
//
// Blocks are persistent over heads, and prefetch the next head's keys and values while computing one. One warpgroup's
// computation overlaps the others' waits.
//
// grid.x blocks take every grid.x-th head of the batch; grid.y: parts among which a head's tiles of queries are
// divided, at most as many as tiles. Operands and the epilogue are as in attention_wgmma.h; boxes of k and v hold half
// of kKeys tokens. kKeys - 32 < keys <= kKeys, and there is no causal mask. A NaN reaches the results of all queries
// that see it.
#pragma once
#include "tenon/backend/cuda/device/attention/attention_wgmma.h"

namespace tenon::device {

/// A part of a tile's keys.
template <int kKeys_>
struct SomeKeys {
  static constexpr int kKeys = kKeys_, kWarpM = 16;
};

/// kDepth_, kValueColumns_: as in AttentionWgmmaTile. kKeys_: all keys, in one to three parts. kStages_: buffers for
/// keys and values of a head; kSlots_: buffers per warpgroup for tiles of queries.
template <int kDepth_, int kValueColumns_, int kGroups_, int kKeys_, int kStages_, int kSlots_>
struct AttentionShortTile {
  static constexpr int kDepth = kDepth_, kValueColumns = kValueColumns_, kGroups = kGroups_, kKeys = kKeys_;
  static constexpr int kStages = kStages_, kSlots = kSlots_;
  static constexpr int kParts = kKeys <= 96 ? 1 : kKeys <= 192 ? 2 : 3;
  static constexpr int kPartKeys = kKeys <= 96    ? kKeys
                                   : kKeys <= 192 ? kKeys / 2
                                   : kKeys <= 208 ? 64
                                   : kKeys <= 224 ? 80
                                                  : 96;
  static constexpr int kLastKeys = kKeys - (kParts - 1) * kPartKeys;
  using Part = SomeKeys<kPartKeys>;
  using Last = SomeKeys<kLastKeys>;
  static constexpr int kSumWarps = 4 * kGroups, kThreads = 32 * kSumWarps + 128;
  /// Registers per thread at first, and for consumers; the producer warpgroup keeps 24.
  static constexpr int kEqualRegisters = 512 / (kGroups + 1) / 8 * 8;
  static constexpr int kMaxRegisters = (kEqualRegisters * (kGroups + 1) - 24) / kGroups / 8 * 8;
  static constexpr int kRegisters = kMaxRegisters < 240 ? kMaxRegisters : 240;
  static constexpr bool kHeld = false;  ///< the queries stay in shared memory
  // What MmaSums and mma_store need.
  static constexpr int kWarpM = 16, kWarpN = kValueColumns;
  static constexpr bool kPermutesB = true;
  static constexpr int kMaxCalls = 8;
  static constexpr int kSlabColumns = kWarpN, kSlabBytes = kWarpN % 32 ? 16 * (kSlabColumns + 8) * 4 : 0;

  static constexpr int kColumnBlocks = (kDepth + 63) / 64;  ///< of 64 columns, of q, k and v
  static constexpr int kKeyBlock = kKeys * 128, kQueryBlock = 64 * 128;
  static constexpr int kTileBytes = kColumnBlocks * kKeyBlock, kStageBytes = 2 * kTileBytes;  ///< keys; and values
  static constexpr int kQueryBytes = kColumnBlocks * kQueryBlock;
  static constexpr int kQueriesAt = kStages * kStageBytes, kSlabsAt = kQueriesAt + kGroups * kSlots * kQueryBytes;
  static constexpr int kBarriersAt = kSlabsAt + kSumWarps * kSlabBytes;
  static constexpr int kSharedBytes = kBarriersAt + 32 * kStages + 16 * kGroups * kSlots;
  static_assert(kDepth % 16 == 0 && kPartKeys % 16 == 0 && kLastKeys >= 32 && kValueColumns <= 64 * kColumnBlocks);
};

/// The buffer of tile `number` of this block's tiles of queries.
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

/// A block's heads, and the tiles of their queries that this block takes.
template <class Tile>
struct ShortHeads {
  const AttentionSizes& s;
  AttentionStage<Tile> stage = {};    ///< of the head's keys and values
  int index = block_x(), number = 0;  ///< of the head, and of its first tile
  int first, tiles;

  DEV explicit ShortHeads(const AttentionSizes& sizes) : s(sizes) {
    const int all = (s.queries + 63) / 64;
    first = all * block_y() / grid_y();
    tiles = all * (block_y() + 1) / grid_y() - first;
  }
  DEV bool there() const { return index < s.batch * s.heads; }
  DEV void advance() {
    number += tiles, index += grid_x();
    stage.advance();
  }
};

/// The producer thread.
template <class Tile, class Q, class K, class V, class Params>
DEV void short_produce(const Params& p) {
  const AttentionSizes& s = p.sizes;
  NO_UNROLL for (ShortHeads<Tile> at(s); at.there(); at.advance()) {
    const AttentionStage<Tile>& to = at.stage;
    const int batch = at.index / s.heads, head = at.index % s.heads;
    auto load_rows = [&](uint32_t shared, const TensorMap& map, uint32_t full, uint32_t empty) {
      constexpr int kHalf = Tile::kKeys / 2;
      mbarrier_wait(empty, to.phase ^ 1);
      mbarrier_arrive_expecting(full, Tile::kTileBytes);
      UNROLL for (int half = 0; half < 2; ++half) load_head_rows<Tile>(
          shared + half * kHalf * 128, Tile::kKeyBlock, map, full, half * kHalf, head / (s.heads / s.kv_heads), batch);
    };
    load_rows(to.keys(), K::map(p), to.keys_full(), to.keys_empty());
    NO_UNROLL for (int tile = 0; tile < at.tiles; ++tile) {
      const ShortSlot<Tile> slot(at.number + tile);
      mbarrier_wait(slot.empty(), slot.phase ^ 1);
      mbarrier_arrive_expecting(slot.full(), Tile::kQueryBytes);
      load_head_rows<Tile>(slot.queries(), Tile::kQueryBlock, Q::map(p), slot.full(), 64 * (at.first + tile), head,
                           batch);
      if (tile == 0) load_rows(to.values(), V::map(p), to.values_full(), to.values_empty());
    }
  }
}

/// A warpgroup's tiles, one after another.
template <class Tile>
struct ShortTiles : ShortHeads<Tile> {
  int tile = warp_uniform() / 4;  ///< within the head's
  DEV explicit ShortTiles(const AttentionSizes& sizes) : ShortHeads<Tile>(sizes) { pass(); }
  DEV bool last() const { return tile + Tile::kGroups >= this->tiles; }  ///< of the head
  DEV int query() const { return 64 * (this->first + tile); }
  DEV ShortSlot<Tile> slot() const { return ShortSlot<Tile>(this->number + tile); }
  DEV void ready() const {
    mbarrier_wait(this->stage.keys_full(), this->stage.phase);
    mbarrier_wait(slot().full(), slot().phase);
  }
  DEV void advance() {
    tile += Tile::kGroups;
    if (tile >= this->tiles) head(), pass();
  }

 private:
  DEV void head() {
    tile -= this->tiles;
    ShortHeads<Tile>::advance();
  }
  /// Releases heads in which this warpgroup has no tile: the other warpgroups may already be done with them.
  DEV void pass() {
    if constexpr (Tile::kGroups > 1) {
      while (this->there() && tile >= this->tiles) {
        mbarrier_wait(this->stage.keys_full(), this->stage.phase);
        leave(this->stage.keys_empty());
        mbarrier_wait(this->stage.values_full(), this->stage.phase);
        leave(this->stage.values_empty());
        head();
      }
    }
  }
};

/// The softmax of a tile of queries, part by part.
template <class Tile>
struct ShortSoftmax {
  float top[2], keep[2], total[1][2];  ///< of a lane's two rows
  float scale;                         ///< for scores as exponents of 2
  int rows;                            ///< valid rows of the warp's 16

  DEV void begin(const ShortTiles<Tile>& at) {
    scale = at.s.scale * 1.4426950408889634f;
    rows = at.s.queries - at.query() - warp_uniform() % 4 * 16;
    UNROLL for (int half = 0; half < 2; ++half) {
      total[0][half] = 0.0f, keep[half] = 1.0f;
      top[half] = AttentionScores<typename Tile::Part>::minus_infinity();
    }
  }
  /// Turns scores into weights. Missing rows keep their scores: their results are never stored.
  template <class Keys>
  DEV void weigh(AttentionScores<Keys>& scores) {
    UNROLL for (int half = 0; half < 2; ++half) {
      if (rows > 8 * half) weigh_row(scores, 0, half, scale, {top[half], keep[half], total[0][half]});
    }
  }
  DEV void rescale(MmaSums<Tile>& sums) const {
    UNROLL for (int j = 0; j < sums.kColumns; ++j) UNROLL for (int e = 0; e < 4; ++e) sums.v[0][j][e] *= keep[e / 2];
  }
};

/// A tile's results. `start` starts its scores over the first part of the keys; `finish` does the rest.
template <class Tile, class T>
struct ShortProducts {
  AttentionScores<typename Tile::Part> scores;
  HeldQueries<Tile> queries;
  AttentionWeights<typename Tile::Part> weights;
  AttentionWeights<typename Tile::Last> last;
  MmaSums<Tile> sums;
  ShortSoftmax<Tile> softmax;

  DEV void start(const ShortTiles<Tile>& at) {
    queries = HeldQueries<Tile>(at.slot().queries());
    wgmma_fence();
    queries.template multiply<T>(scores, at.stage.keys());
  }
  DEV void finish(const ShortTiles<Tile>& at) {
    softmax.begin(at);
    wgmma_wait<0>();
    wgmma_settle(scores.v[0]);
    if constexpr (Tile::kParts == 1) mask_last(at, scores);
    softmax.weigh(scores);
    weights.round(T{}, scores);
    mbarrier_wait(at.stage.values_full(), at.stage.phase);
    if constexpr (Tile::kParts == 1) {
      wgmma_fence();
      add_values<Tile, T>(sums, weights, at.stage.values(), true);
    } else {
      add_parts(at);
    }
    wgmma_wait<0>();
    wgmma_settle(sums.v[0]);
    if (at.last()) leave(at.stage.values_empty());
  }

 private:
  /// The second and later parts.
  DEV void add_parts(const ShortTiles<Tile>& at) {
    UNROLL for (int part = 1; part < Tile::kParts - 1; ++part) {
      next(at, part, scores);
      softmax.weigh(scores);
      meet();
      weights.round(T{}, scores);
    }
    AttentionScores<typename Tile::Last> rest;
    next(at, Tile::kParts - 1, rest);
    mask_last(at, rest);
    softmax.weigh(rest);
    meet();
    last.round(T{}, rest);
    wgmma_fence();
    add_values<Tile, T>(sums, last, at.stage.values() + (Tile::kParts - 1) * Tile::kPartKeys * 128);
  }
  /// Releases queries and keys, of which the last part's scores are known, and masks those.
  DEV void mask_last(const ShortTiles<Tile>& at, AttentionScores<typename Tile::Last>& scores) const {
    leave(at.slot().empty());
    if (at.last()) leave(at.stage.keys_empty());
    scores.template mask<(Tile::kLastKeys - 32) / 8>(at.s, at.query(), (Tile::kParts - 1) * Tile::kPartKeys);
  }
  /// The scores of a part, overlapping the products of the previous part's weights.
  template <class Keys>
  DEV void next(const ShortTiles<Tile>& at, int part, AttentionScores<Keys>& to) {
    wgmma_fence();
    queries.template multiply<T>(to, at.stage.keys() + part * Tile::kPartKeys * 128);
    add_values<Tile, T>(sums, weights, at.stage.values() + (part - 1) * Tile::kPartKeys * 128, part == 1);
    wgmma_wait<1>();
    wgmma_settle(to.v[0]);
  }
  DEV void meet() {
    wgmma_wait<0>();
    wgmma_settle(sums.v[0]);
    softmax.rescale(sums);
  }
};

/// Passes a warp's results, `rows` of 16, to the epilogue; `row`: the epilogue's number of the tile's first row.
template <class Tile, class Epilogue, class Params>
DEV void short_store(const Params& p, MmaSums<Tile>& sums, int row, int rows) {
  const WarpPlace place{warp() % 4 * 16, 0,
                        reinterpret_cast<float*>(shared_memory() + Tile::kSlabsAt + warp_uniform() * Tile::kSlabBytes)};
  const int depth = p.sizes.depth, end = row + place.row + rows;
  if constexpr (permutes_b<Tile, 1>()) permute_sums(sums);
  if (rows >= 16 && depth == Tile::kValueColumns) {
    // Avoids a branch per store, which would serialize the address computations.
    auto row_of = [&](int i) {
      assume(row + i >= 0);
      return row + i;
    };
    mma_store<Tile, Epilogue>(p, sums, place, row_of, 0, Tile::kValueColumns);
  } else if (rows > 0) {
    mma_store<Tile, Epilogue>(
        p, sums, place, [&](int i) { return row + i < end ? row + i : -1; }, 0, depth);
  }
}

/// All tiles of a warpgroup.
template <class Tile, class T, class Epilogue, class Params>
DEV void short_consume(const Params& p) {
  ShortTiles<Tile> at(p.sizes);
  ShortProducts<Tile, T> products;
  if (!at.there()) return;
  at.ready();
  products.start(at);
  NO_UNROLL while (at.there()) {
    products.finish(at);
    const int row = at.index * p.sizes.queries + at.query();
    at.advance();
    // After the last tile this computes unused scores from leftover data.
    if (at.there()) at.ready();
    products.start(at);
    divide_sums(products.sums, products.softmax.total);
    short_store<Tile, Epilogue>(p, products.sums, row, products.softmax.rows);
  }
  wgmma_wait<0>();
}

template <class Tile, class Q, class K, class V, class Epilogue, class Params>
DEV void attention_short(const Params& p) {
  static_assert(Epilogue::kLanes == 1);
  if (thread_index() == 0) {
    init_stages<Tile>(Tile::kSumWarps);
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
