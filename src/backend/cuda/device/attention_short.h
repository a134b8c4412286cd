// Attention of few keys with wgmma, y = softmax(scale q k^T) v head by head: all keys of a head fit in shared memory,
// and the scores of a query with all of them in registers. Nothing streams: one maximum, one sum, no rescaling.
//
//   one warp: keys, values and tiles of 64 queries of one head after the other --TMA--> shared memory
//   one warpgroup, tile by tile:
//     scores of the first, of the second part of the keys --wgmma--> registers --softmax--> weights, rounded to T
//     sums = weights * values, of the first part while the second's weights are computed --slabs--> the epilogue,
//     while the scores of the next tile are computed
//
// A block walks over heads, and the copies for the next begin as soon as their places are free. Two blocks share a
// multiprocessor: what one computes overlaps what the other waits for.
//
// grid.x blocks take every grid.x-th head of the batch; grid.y: parts that a head's tiles of queries are dealt to, at
// most as many as there are tiles. Operands and the epilogue are attention_wgmma.h's; boxes of k and v hold half of
// kKeys tokens. kKeys - 32 < keys <= kKeys, and there is no causal mask. A NaN reaches the results of all queries that
// see it.
#pragma once
#include "tenon/device/attention_wgmma.h"

namespace tenon::device {

/// A part of a tile's keys.
template <int kKeys_>
struct SomeKeys {
  static constexpr int kKeys = kKeys_, kPolynomial = 0, kWarpM = 16;
};

/// kDepth_, kValueColumns_: as AttentionWgmmaTile has them. kKeys_: all keys. kSlots_: tiles of queries that have
/// places.
template <int kDepth_, int kValueColumns_, int kKeys_, int kSlots_>
struct AttentionShortTile {
  static constexpr int kDepth = kDepth_, kValueColumns = kValueColumns_, kKeys = kKeys_, kSlots = kSlots_;
  static constexpr int kFirstKeys = kKeys < 192 ? kKeys / 2 : kKeys < 208 ? 96 : 128, kLastKeys = kKeys - kFirstKeys;
  using First = SomeKeys<kFirstKeys>;
  using Last = SomeKeys<kLastKeys>;
  /// Registers of a thread at first, of those who copy, and of those who compute.
  static constexpr int kBlocks = 2, kThreads = 256, kEqualRegisters = 128, kCopyRegisters = 24, kRegisters = 232;
  static constexpr bool kHeld = false;  ///< the queries stay where they lie
  // What MmaSums and mma_store want to know.
  static constexpr int kWarpM = 16, kWarpN = kValueColumns;
  static constexpr int kSlabColumns = kValueColumns % 80 == 0 ? 80 : kValueColumns % 64 == 0 ? 64 : kWarpN;
  static constexpr int kSlabBytes = 16 * (kSlabColumns + 8) * 4;

  static constexpr int kColumnBlocks = (kDepth + 63) / 64;  ///< of 64 columns, of q, k and v
  static constexpr int kKeyBlock = kKeys * 128, kQueryBlock = 64 * 128;
  static constexpr int kTileBytes = kColumnBlocks * kKeyBlock, kQueryBytes = kColumnBlocks * kQueryBlock;
  static constexpr int kQueriesAt = 2 * kTileBytes, kSlabsAt = kQueriesAt + kSlots * kQueryBytes;
  static constexpr int kBarriersAt = kSlabsAt + 4 * kSlabBytes, kSharedBytes = kBarriersAt + 32 + 16 * kSlots;
  static_assert(kDepth % 16 == 0 && kFirstKeys % 16 == 0 && kLastKeys >= 32 && kValueColumns <= 64 * kColumnBlocks);
};

/// Where a head's keys and values lie, and tiles of queries. A barrier each for what has come and what is done with.
template <class Tile>
struct ShortPlaces {
  uint32_t shared = shared_address(shared_memory());
  DEV uint32_t keys() const { return shared; }
  DEV uint32_t values() const { return shared + Tile::kTileBytes; }
  DEV uint32_t queries(int slot) const { return shared + Tile::kQueriesAt + slot * Tile::kQueryBytes; }
  DEV uint32_t keys_full() const { return shared + Tile::kBarriersAt; }
  DEV uint32_t keys_empty() const { return keys_full() + 8; }
  DEV uint32_t values_full() const { return keys_full() + 16; }
  DEV uint32_t values_empty() const { return keys_full() + 24; }
  DEV uint32_t queries_full(int slot) const { return keys_full() + 32 + 16 * slot; }
  DEV uint32_t queries_empty(int slot) const { return queries_full(slot) + 8; }
};

/// A block's tiles of queries, one after the other.
template <class Tile>
struct ShortTiles {
  const AttentionSizes& s;
  int index = block_x(), phase = 0;  ///< of the head; phase: of its keys and values
  int first, end, tile;              ///< the head's tiles that are this block's, and where it is
  int slot = 0, slot_phase = 0;

  DEV explicit ShortTiles(const AttentionSizes& sizes) : s(sizes) {
    const int all = (s.queries + 63) / 64;
    first = all * block_y() / grid_y(), end = all * (block_y() + 1) / grid_y();
    tile = first;
  }
  DEV bool there() const { return index < s.batch * s.heads; }
  DEV bool begins() const { return tile == first; }
  DEV bool ends() const { return tile + 1 == end; }
  DEV int query() const { return 64 * tile; }
  DEV void advance() {
    if (++slot == Tile::kSlots) slot = 0, slot_phase ^= 1;
    if (++tile == end) tile = first, phase ^= 1, index += grid_x();
  }
};

/// The copying thread.
template <class Tile, class Q, class K, class V, class Params>
DEV void short_produce(const Params& p) {
  const AttentionSizes& s = p.sizes;
  const ShortPlaces<Tile> to;
  NO_UNROLL for (ShortTiles<Tile> at(s); at.there(); at.advance()) {
    const int batch = at.index / s.heads, head = at.index % s.heads;
    auto load = [&](uint32_t shared, int block_bytes, const TensorMap& map, uint32_t full, int token, int of_head) {
      UNROLL for (int block = 0; block < Tile::kColumnBlocks; ++block)
          tma_load(shared + block * block_bytes, map, full, 64 * block, token, of_head, batch);
    };
    auto load_rows = [&](uint32_t shared, const TensorMap& map, uint32_t full, uint32_t empty) {
      constexpr int kHalf = Tile::kKeys / 2;
      mbarrier_wait(empty, at.phase ^ 1);
      mbarrier_arrive_expecting(full, Tile::kTileBytes);
      UNROLL for (int half = 0; half < 2; ++half)
          load(shared + half * kHalf * 128, Tile::kKeyBlock, map, full, half * kHalf, head / (s.heads / s.kv_heads));
    };
    if (at.begins()) load_rows(to.keys(), K::map(p), to.keys_full(), to.keys_empty());
    mbarrier_wait(to.queries_empty(at.slot), at.slot_phase ^ 1);
    mbarrier_arrive_expecting(to.queries_full(at.slot), Tile::kQueryBytes);
    load(to.queries(at.slot), Tile::kQueryBlock, Q::map(p), to.queries_full(at.slot), at.query(), head);
    if (at.begins()) load_rows(to.values(), V::map(p), to.values_full(), to.values_empty());
  }
}

DEV void leave(uint32_t empty) {
  if (lane() == 0) mbarrier_arrive(empty);
}

/// The scores of a tile of queries with all keys, and their softmax.
template <class Tile>
struct ShortScores {
  AttentionScores<typename Tile::First> first;
  AttentionScores<typename Tile::Last> last;
  HeldQueries<Tile> queries;
  ShortPlaces<Tile> places;
  float top[2], total[1][2];  ///< of a lane's two rows
  float scale;                ///< of scores that are exponents of 2
  int rows;                   ///< of the warp's 16, that there are

  /// Starts the scores with the first part of the keys.
  template <class T>
  DEV void start(const ShortTiles<Tile>& at) {
    queries = HeldQueries<Tile>(places.queries(at.slot));
    wgmma_fence();
    queries.template multiply<T>(first, places.keys());
  }
  /// Waits for them, computes the others, and finds the highest of each row.
  template <class T>
  DEV void finish(const ShortTiles<Tile>& at) {
    scale = at.s.scale * 1.4426950408889634f;
    rows = at.s.queries - at.query() - warp_uniform() * 16;
    UNROLL for (int half = 0; half < 2; ++half) total[0][half] = 0.0f, top[half] = first.minus_infinity();
    wgmma_wait<0>();
    wgmma_settle(first.v[0]);
    wgmma_fence();
    queries.template multiply<T>(last, places.keys() + Tile::kFirstKeys * 128);
    raise(first);
    wgmma_wait<0>();
    wgmma_settle(last.v[0]);
    leave(places.queries_empty(at.slot));
    if (at.ends()) leave(places.keys_empty());
    last.template mask<(Tile::kLastKeys - 32) / 8>(at.s, at.query(), Tile::kFirstKeys);
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

/// All tiles, by the warpgroup that computes.
template <class Tile, class T, class Epilogue, class Params>
DEV void short_consume(const Params& p) {
  const AttentionSizes& s = p.sizes;
  const ShortPlaces<Tile> places;
  const WarpPlace place{warp() * 16, 0,
                        reinterpret_cast<float*>(shared_memory() + Tile::kSlabsAt + warp_uniform() * Tile::kSlabBytes)};
  ShortTiles<Tile> at(s);
  ShortScores<Tile> scores;
  MmaSums<Tile> sums;
  auto ready = [&] {
    mbarrier_wait(places.keys_full(), at.phase);
    mbarrier_wait(places.queries_full(at.slot), at.slot_phase);
  };
  if (!at.there()) return;
  ready();
  scores.template start<T>(at);
  NO_UNROLL while (at.there()) {
    AttentionWeights<typename Tile::First> first;
    AttentionWeights<typename Tile::Last> last;
    scores.template finish<T>(at);
    scores.template weigh<T>(scores.first, first);
    mbarrier_wait(places.values_full(), at.phase);
    wgmma_fence();
    add_values<Tile, T>(sums, first, places.values(), true);
    scores.template weigh<T>(scores.last, last);
    wgmma_fence();
    add_values<Tile, T>(sums, last, places.values() + Tile::kFirstKeys * 128);
    const bool end = at.ends();
    const int query = at.query(), q_row = at.index * s.queries;
    at.advance();
    // Behind the last tile: scores that nobody wants, of what lies there.
    if (at.there()) ready();
    scores.template start<T>(at);
    wgmma_wait<1>();
    wgmma_settle(sums.v[0]);
    if (end) leave(places.values_empty());
    divide_sums(sums, scores.total);
    if (scores.rows > 0)
      mma_store<Tile, Epilogue>(
          p, sums, place, [&](int i) { return query + i < s.queries ? q_row + query + i : -1; }, 0, s.depth);
  }
  wgmma_wait<0>();
}

template <class Tile, class Q, class K, class V, class Epilogue, class Params>
DEV void attention_short(const Params& p) {
  static_assert(Epilogue::kLanes == 1);
  if (thread_index() == 0) {
    const ShortPlaces<Tile> places;
    mbarrier_init(places.keys_full(), 1);
    mbarrier_init(places.keys_empty(), 4);
    mbarrier_init(places.values_full(), 1);
    mbarrier_init(places.values_empty(), 4);
    for (int slot = 0; slot < Tile::kSlots; ++slot) {
      mbarrier_init(places.queries_full(slot), 1);
      mbarrier_init(places.queries_empty(slot), 4);
    }
    mbarrier_init_fence();
  }
  sync_block();
  griddep_wait();
  griddep_launch();
  if (warp_uniform() >= 4) {
    registers_decrease<Tile::kCopyRegisters>();
    if (thread_index() == 128) short_produce<Tile, Q, K, V>(p);
  } else {
    registers_increase<Tile::kRegisters>();
    short_consume<Tile, typename Q::T, Epilogue>(p);
  }
}

}  // namespace tenon::device
