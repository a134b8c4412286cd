// Attention as in attention_grouped.h, for more keys than the device has places for: a warp has a whole chunk of 128
// keys, in 8 key tiles one after another, and meets the block's other warps, which have the segment's other chunks, at
// the end.
//
//   all threads: queries --shared--> fragments of every warp
//   a warp, for each tile of 16 keys: keys and values --cp.async--> its own slots in shared memory, kStages - 1 ahead
//     scores = q k^T with mma; weights relative to the highest score so far, rounded to T; sums += weights times values
//   sums of chunks --> as there
//
// Sums have the same order, and weights depend on the top only by a power of two, so bits do not depend on which of the
// two computed them.
//
// Keys and values of a chunk must be equally far apart: pages have whole chunks. grid and Params as there, with one
// block for each segment of the capacity; Tile::kThreads, Tile::kSharedBytes.
#pragma once
#include "tenon/backend/cuda/device/attention/attention_grouped.h"

namespace tenon::device {

/// As GroupedTile, with a chunk per warp; kStages_ tiles of keys and values per warp in shared memory.
template <int kDepth_, int kRows_, int kStages_, int kResident_>
struct ChunksTile {
  static constexpr int kDepth = kDepth_, kRows = kRows_, kHalves = kRows / 8, kStages = kStages_;
  static constexpr int kBlocks = 1, kWarps = 8, kThreads = 32 * kWarps, kSegmentChunks = kWarps, kResident = kResident_;
  static constexpr bool kMeetsInMemory = false;
  static constexpr int kKeys = 16, kFragments = kKeys / 8, kTurns = 8;  ///< turns: key tiles of a chunk
  static constexpr int kChunk = kTurns * kKeys, kSegmentKeys = kSegmentChunks * kChunk;
  static constexpr int kGroups = kDepth / 16;
  static constexpr int kUnit = 32, kUnits = kRows * kDepth / kUnit;
  static constexpr int kOwned = kUnits, kUnitsOfRow = kDepth > kUnit ? kDepth / kUnit : 1;
  static constexpr int kClasses = 4;
  // Shared memory, in words: slots of warps, where later their chunks' sums are; queries, 16 rows; tops and totals of
  // chunks; a word.
  static constexpr int kKeyTileBytes = kKeys * kDepth * 2,
                       kSlots = kStages * kKeyTileBytes / 2;  ///< slots: words per warp
  static constexpr int kFoundAt = 0, kFoundWords = kSlots;
  static constexpr int kQueriesAt = kWarps * kSlots, kTopsFoundAt = kQueriesAt + 16 * kDepth / 2;
  static constexpr int kTotalsFoundAt = kTopsFoundAt + kSegmentChunks * kRows;
  static constexpr int kCameAt = kTotalsFoundAt + kSegmentChunks * kRows * kClasses;
  static constexpr int kSharedBytes = 4 * (kCameAt + 4);
  static constexpr int kLeft = 0,
                       kSegmentLeft = (2 + kClasses) * kRows * kDepth;  ///< in the workspace: by chunks, by segments
  static_assert(kDepth >= 16 && kDepth <= 128 && (kDepth & (kDepth - 1)) == 0 && kStages >= 2);
  static_assert(kFoundWords >= kOwned * kUnit);

  /// The chunk of the segment that a warp works on in a turn, and the first of its keys in the segment.
  DEV static int chunk(int, int) { return warp(); }
  DEV static int first_key(int, int turn) { return warp() * kChunk + turn * kKeys; }
};

/// Rows of a cache from a warp's chunk on.
template <class Tile, class Operand>
struct ChunkRows {
  using T = typename Operand::T;
  static constexpr int kChunks = Tile::kDepth / 8;  // of 8 columns
  const T* next;                                    ///< what the lane copies first of the next key tile
  int64_t stride;                                   ///< from a row to the next

  /// `key_tile`: the first one; if it has keys.
  template <class Params>
  DEV ChunkRows(const Params& p, const GroupedPlace<Tile>& at, const KeyTile& key_tile) {
    const auto row = [&](int number) {
      const int key = key_tile.key(number);
      return Operand::at(grouped_row<Operand>(p, at, key_tile.place + key - key_tile.first, key), 0);
    };
    const T* const first = row(0);
    stride = key_tile.first + 1 < key_tile.end ? row(1) - first : 0;
    next = first + lane() / kChunks * stride + lane() % kChunks * 8;
  }
  /// Copies the next key tile to shared memory, zeros where there are no keys.
  DEV void copy(const KeyTile& key_tile, uint32_t to) {
    UNROLL for (int i = 0; i < Tile::kKeys * kChunks; i += 32) {
      const int number = (i + lane()) / kChunks;
      if (!(key_tile.fresh >> number & 1))
        cp_async16(to + SwizzledRows<kChunks>::at(number, lane() % kChunks), next + i / kChunks * stride,
                   key_tile.holds(number) ? 16 : 0);
    }
    next += Tile::kKeys * stride;
  }
};

/// A warp's slots: a tile of keys and one of values each.
template <class Tile, class K, class V>
struct ChunkSlots {
  using Rows = SwizzledRows<Tile::kDepth / 8>;
  static constexpr int kChunks = Tile::kDepth / 8;  // of 8 columns
  int number = 0;                                   ///< the slot

  DEV void next() { number = number + 1 == Tile::kStages ? 0 : number + 1; }
  DEV uint32_t at() const { return (warp() * Tile::kStages + number) * 2 * Tile::kKeyTileBytes; }
  DEV uint32_t keys() const { return shared_address(shared_memory()) + at(); }
  DEV uint32_t values() const { return keys() + Tile::kKeyTileBytes; }

  /// Computes a row that the launch adds, into the cache and the slot.
  template <class Fresh, class Params>
  DEV void make(const Params& p, const AttentionSizes& s, const GroupedPlace<Tile>& at, const KeyTile& key_tile,
                int in_tile, int fresh) const {
    using T = typename K::T;
    const int chunk = lane() % kChunks, from = fresh * s.kv_heads + block_y(), key = key_tile.first + in_tile;
    Frag<uint32_t, 4> made[2];
    evaluate<T, typename Fresh::Key, 8>(p, from, 8 * chunk, made[0].v);
    evaluate<T, typename Fresh::Value, 8>(p, from, 8 * chunk, made[1].v);
    if (lane() >= kChunks) return;
    const T* const to[2] = {K::at(grouped_row<K>(p, at, key_tile.place + in_tile, key), 8 * chunk),
                            V::at(grouped_row<V>(p, at, key_tile.place + in_tile, key), 8 * chunk)};
    UNROLL for (int i = 0; i < 2; ++i) {
      device::store(reinterpret_cast<uint32_t*>(const_cast<T*>(to[i])), made[i]);
      device::store(reinterpret_cast<uint32_t*>(shared_memory() + this->at() + i * Tile::kKeyTileBytes +
                                                Rows::at(in_tile, chunk)),
                    made[i]);
    }
  }
};

/// Before the wait: prefetches into L2 the first half of what this kernel read when it ran last, as the first blocks'
/// halves have room there.
template <class Tile, class K, class V, class Params>
DEV void chunk_prefetch(const Params& p) {
  const AttentionSizes& s = p.sizes;
  const GroupedPlace<Tile> at(s);
  uint32_t before;
  copy_past_l1<4>(&before, GroupedCounters<Tile>(s.split, at).keys);
  const int keys = static_cast<int>(before) < s.keys ? static_cast<int>(before) : s.keys, first = at.first_key(0);
  if (first >= keys) return;
  int place = 0;
  if constexpr (InPages<K>) place = K::place_early(p, block_z(), first);
  NO_UNROLL for (int i = lane(); i < Tile::kChunk / 2 && first + i < keys; i += 32) {
    UNROLL for (int c = 0; c < Tile::kDepth; c += 64) {
      prefetch_l2(K::at(grouped_row<K>(p, at, place + i, first + i), c));
      prefetch_l2(V::at(grouped_row<V>(p, at, place + i, first + i), c));
    }
  }
}

/// All rows' queries, in shared memory: zeros in missing rows.
template <class Tile, class T, class Q, class Params>
DEV void chunk_queries(const Params& p, const GroupedPlace<Tile>& at, float* shared) {
  using Rows = SwizzledRows<Tile::kDepth / 8>;
  unsigned char* to = reinterpret_cast<unsigned char*>(shared + Tile::kQueriesAt);
  NO_UNROLL for (int i = thread_index(); i < 16 * Tile::kDepth / 4; i += Tile::kThreads) {
    const int row = i / (Tile::kDepth / 4), column = i % (Tile::kDepth / 4) * 4;
    Frag<uint32_t, 2> words{};
    if (row < at.rows) evaluate<T, Q, 4>(p, at.q_row + row, column, words.v);
    device::store(reinterpret_cast<uint32_t*>(to + Rows::at(row, column / 8) + column % 8 * 2), words);
  }
}

/// A warp's sums over its chunk, relative to the tops so far.
template <class Tile>
struct ChunkSums {
  using Rows = SwizzledRows<Tile::kDepth / 8>;
  static constexpr int kTiles = Tile::kDepth / 8, kHalves = Tile::kHalves;
  uint32_t queries[Tile::kGroups][4];
  int sees[2];  ///< how many keys each of the lane's rows sees
  float tops[kHalves], totals[kHalves] = {}, v[kTiles][4] = {};

  DEV ChunkSums(const AttentionSizes& s, const GroupedPlace<Tile>& at, const float* shared) {
    UNROLL for (int g = 0; g < Tile::kGroups; ++g)
        ldmatrix_x4(queries[g], shared_address(shared + Tile::kQueriesAt) + Rows::at(lane() % 16, 2 * g + lane() / 16));
    UNROLL for (int h = 0; h < 2; ++h) {
      const int seen = at.sees(s, 8 * h + lane() / 4);
      sees[h] = seen < s.keys ? seen : s.keys;
    }
    UNROLL for (int h = 0; h < kHalves; ++h) tops[h] = no_score();
  }
  /// Adds a key tile, whose keys and values are in shared memory.
  template <class T>
  DEV void add(T, int first, uint32_t keys, uint32_t values, float scale) {
    float scores[Tile::kFragments][4] = {};
    const uint32_t from = keys + Rows::at(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2);
    UNROLL for (int g = 0; g < Tile::kGroups; ++g) {
      uint32_t words[4];
      ldmatrix_x4(words, Rows::ahead(from, g));
      UNROLL for (int j = 0; j < Tile::kFragments; ++j) {
        const uint32_t of_keys[2] = {words[2 * j], words[2 * j + 1]};
        mma(T{}, scores[j], queries[g], of_keys);
      }
    }
    UNROLL for (int j = 0; j < Tile::kFragments; ++j)
        UNROLL for (int e = 0; e < 2 * kHalves; ++e) if (first + 8 * j + 2 * (lane() % 4) + e % 2 >= sees[e / 2])
            scores[j][e] = no_score();
    uint32_t left[4] = {};
    UNROLL for (int h = 0; h < kHalves; ++h) weigh(T{}, h, scores, scale, left);
    const uint32_t of_values = values + Rows::at(lane() % 16, lane() / 16);
    UNROLL for (int pair = 0; pair < Tile::kDepth / 16; ++pair) {
      uint32_t right[4];
      ldmatrix_x4_trans(right, Rows::ahead(of_values, pair));
      UNROLL for (int i = 0; i < 2; ++i) {
        const uint32_t of_tile[2] = {right[2 * i], right[2 * i + 1]};
        mma(T{}, v[2 * pair + i], left, of_tile);
      }
    }
  }
  /// Passes them on.
  template <class Meeting>
  DEV void meet(const GroupedPlace<Tile>& at, const Meeting& meeting) const {
    UNROLL for (int h = 0; h < kHalves; ++h) {
      const int row = lane() / 4 + 8 * h;
      if (row >= at.rows) continue;
      UNROLL for (int tile = 0; tile < kTiles; ++tile) UNROLL for (int e = 0; e < 2; ++e)
          meeting.put(row, 8 * tile + lane() % 4 * 2 + e, v[tile][2 * h + e]);
      meeting.put_total(row, 0, lane() % 4, totals[h]);
      if (lane() % 4 == 0) meeting.put_top(row, 0, tops[h]);
    }
  }

 private:
  /// Turns scores of half of the rows into weights; raises the tops of rows with a higher score.
  template <class T>
  DEV void weigh(T, int h, const float (&scores)[Tile::kFragments][4], float scale, uint32_t (&left)[4]) {
    float top = no_score();
    UNROLL for (int j = 0; j < Tile::kFragments; ++j) top =
        max_number(top, max_number(scores[j][2 * h], scores[j][2 * h + 1]));
    top = round_up(highest_of_row(top) * scale) - lowered_in_order(T{});
    if (ballot(top > tops[h])) {
      top = max_number(top, tops[h]);
      const float keep = exp2_approximate(tops[h] - (top == no_score() ? 0.0f : top));
      tops[h] = top;
      totals[h] *= keep;
      UNROLL for (int tile = 0; tile < kTiles; ++tile) UNROLL for (int e = 2 * h; e < 2 * h + 2; ++e) v[tile][e] *=
          keep;
    }
    const float shift = shift_in_order(tops[h]);
    float sum = 0, weights[Tile::kFragments][2];
    UNROLL for (int j = 0; j < Tile::kFragments; ++j) {
      UNROLL for (int e = 0; e < 2; ++e) sum += weights[j][e] = weight_in_order(scores[j][2 * h + e], scale, shift);
      left[2 * j + h] = pack(T{}, weights[j][0], weights[j][1]);
    }
    totals[h] += sum;
  }
};

template <class Tile, class Q, class K, class V, class Epilogue, class Keys = AllKeys, class Lse = NoLse,
          class Fresh = NoFresh, class Params>
DEV void attention_chunks(const Params& p) {
  static_assert(K::kWidth == 8 && V::kWidth == 8 && Epilogue::kLanes == 1 && InPages<K> == InPages<V>);
  if constexpr (InPages<K>) static_assert(K::kPage % Tile::kChunk == 0);
  using T = typename K::T;
  float* shared = reinterpret_cast<float*>(shared_memory());
  griddep_launch();
  chunk_prefetch<Tile, K, V>(p);
  griddep_wait();
  const GroupedWork<Tile, K, Keys, Fresh> work(p);
  const auto& [fresh, key_tiles, s, at] = work;
  const int left = s.keys - at.first_key(0), with_keys = left <= 0             ? 0
                                                         : left < Tile::kChunk ? (left + Tile::kKeys - 1) / Tile::kKeys
                                                                               : Tile::kTurns;
  // Added rows that no query sees are stored too.
  const int turns = with_keys < Tile::kTurns && !ballot(key_tiles.added != 0) ? with_keys : Tile::kTurns;
  ChunkSlots<Tile, K, V> ahead, slot;
  ChunkRows<Tile, K> keys(p, at, key_tiles.of(at, s.keys, 0));
  ChunkRows<Tile, V> values(p, at, key_tiles.of(at, s.keys, 0));
  const auto request = [&](int turn) {
    if (turn < with_keys) {
      const KeyTile key_tile = key_tiles.of(at, s.keys, turn);
      keys.copy(key_tile, ahead.keys());
      values.copy(key_tile, ahead.values());
    }
    cp_async_commit();
    ahead.next();
  };
  NO_UNROLL for (int turn = 0; turn < Tile::kStages - 1; ++turn) request(turn);
  chunk_queries<Tile, T, Q>(p, at, shared);
  sync_block();
  ChunkSums<Tile> sums(s, at, shared);
  NO_UNROLL for (int turn = 0; turn < turns; ++turn) {
    cp_async_wait<Tile::kStages - 2>();
    sync_warp();  // other lanes' copies have arrived, and all have read the slot that is filled now
    request(turn + Tile::kStages - 1);
    if constexpr (Fresh::kGiven) {
      const KeyTile key_tile = key_tiles.of(at, s.keys, turn);
      if (key_tile.fresh) {
        fresh.for_each(p, at, key_tile.place, key_tile.first,
                       [&](int row, int in_tile) { slot.template make<Fresh>(p, s, at, key_tile, in_tile, row); });
        sync_warp();
      }
    }
    if (turn < with_keys) sums.add(T{}, at.first_key(turn), slot.keys(), slot.values(), s.scale * 1.4426950408889634f);
    slot.next();
  }
  if (at.segment >= at.segments) return;
  typename GroupedMeeting<Tile>::Type meeting(s, at, shared);
  meeting.chunk = warp();
  sync_warp();  // sums take the place of slots
  if (with_keys > 0) sums.meet(at, meeting);
  if (meeting.meet()) grouped_end<Tile, Epilogue, Lse>(p, s, at, meeting, shared);
}

}  // namespace tenon::device
