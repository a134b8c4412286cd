// Attention of few queries per head of keys (a token's, or a few) over a cache. All rows that share keys, a group's
// heads times their queries, are one fragment. A warp has a tile of 16 keys, a block a chunk of 128, or several in
// turn, the next being loaded; the blocks of a segment, of up to 1024 keys, form a cluster or combine through memory:
//
//   a warp, its 16 keys: values --cp.async--> shared     scores = q k^T with mma, fragments loaded from global memory
//     highest scores of all warps --shared--> the chunk's tops --> weights, rounded to T --shared-->
//   a warp, some columns: weights times values of the chunk with mma, in K blocks of 16 keys
//   sums of chunks --> other blocks' shared memory (a cluster), each of which finishes some columns; without clusters
//     the workspace, where the last block of a segment combines them
//   several segments (split-KV) --the workspace--> the last block of a head, or of those that finish the same columns
//
// Sums have one order, that of attention_wgmma.h's kOrder: K blocks of 16 columns and of 16 keys in sequence, chunks in
// order within a segment, then segments in order; weights depend on the top only by a power of two (weight_in_order).
// So a row's result is the same alone and among others, for any capacity of the cache, and bit-identical to that of
// whole texts.
//
// Keys and values may be paged (InPages), with pages of whole key tiles: the position of a warp's key tile is looked up
// together with the number of keys, so that nothing waits for it.
//
// Cache rows that the launch itself adds (Fresh) are computed and stored by the warp whose key tile they belong to: no
// other warp of the kernel reads them.
//
// grid.x = Tile::kBlocks for each segment of the capacity (segments without keys exit at once), grid.y = heads of keys,
// grid.z = batch; Tile::kThreads, Tile::kSharedBytes. Params has a member `sizes`; Q computes its values, Q::eval(p,
// row, column), up to 4 per call; K and V are operands with kWidth = 8. The next kernel may start before this one has
// waited (CallShape::starts_next).
#pragma once
#include "tenon/backend/cuda/device/attention/attention_meeting.h"
#include "tenon/backend/cuda/device/attention/attention_tile.h"

namespace tenon::device {

/// The row of key `key`, which is at `place` if paged.
template <class Operand, class Tile, class Params>
DEV auto grouped_row(const Params& p, const GroupedPlace<Tile>& at, int place, int key) {
  if constexpr (InPages<Operand>)
    return Operand::row_at(p, place, block_y());
  else
    return Operand::row(p, at.kv_row + key);
}

/// Before the wait: prefetches into L2 what this kernel read when it ran last.
template <class Tile, class K, class V, class Params>
DEV void grouped_prefetch(const Params& p) {
  const AttentionSizes& s = p.sizes;
  const GroupedPlace<Tile> at(s);
  uint32_t before;
  copy_past_l1<4>(&before, GroupedCounters<Tile>(s.split, at).keys);
  const int keys = static_cast<int>(before) < s.keys ? static_cast<int>(before) : s.keys;
  const int key = at.first_key(0) + lane() % Tile::kKeys;
  if (key >= keys) return;
  int place = 0;
  if constexpr (InPages<K>) place = K::place_early(p, block_z(), key);
  // Half of the lanes fetch keys, the others values.
  UNROLL for (int c = 0; c < Tile::kDepth; c += 64) {
    if (lane() < Tile::kKeys)
      prefetch_l2(K::at(grouped_row<K>(p, at, place, key), c));
    else
      prefetch_l2(V::at(grouped_row<V>(p, at, place, key), c));
  }
}

/// The launch adds no rows to the caches.
struct NoFresh {
  static constexpr bool kGiven = false;
};
/// Rows that the launch adds to the keys of a head: Fresh has count(p) of them, row j at place(p, j) of the cache's
/// first axis. Each lane holds the place of one of the first 32.
template <class Tile, class Fresh>
struct FreshRows {
  int count = 0, place = -1;
  template <class Params>
  DEV explicit FreshRows(const Params& p) : count(Fresh::count(p)) {
    if (lane() < count) place = Fresh::place(p, lane());
  }
  /// The place of added row first + lane(), -1 if there is none.
  template <class Params>
  DEV int place_of(const Params& p, int first) const {
    if (first == 0) return place;
    return first + lane() < count ? Fresh::place(p, first + lane()) : -1;
  }
  /// Calls make(row, key in the key tile) in all lanes of the warp for each added row, of those whose place lane() has
  /// in `there`, that belongs to the tile of keys from `first_key` on, at place `key_tile`.
  template <class Make>
  DEV static void for_each_of(const GroupedPlace<Tile>& at, int there, int key_tile, int first_key, const Make& make) {
    const int in_tile = there - key_tile;
    const bool mine = key_tile >= 0 && in_tile >= 0 && in_tile < Tile::kKeys && first_key + in_tile < at.capacity;
    const uint32_t found = ballot(there >= 0 && mine);
    NO_UNROLL for (int l = 0; l < 32 && found >> l; ++l) if (found >> l & 1) make(l, shuffle(in_tile, l));
  }
  template <class Params, class Make>
  DEV void for_each(const Params& p, const GroupedPlace<Tile>& at, int key_tile, int first_key,
                    const Make& make) const {
    NO_UNROLL for (int first = 0; first < count; first += 32)
        for_each_of(at, place_of(p, first), key_tile, first_key, [&](int l, int key) { make(first + l, key); });
  }
  /// Lane t: the added keys, as a bit mask, of the key tile of turn t, whose place lane t has in `places`.
  template <class Params>
  DEV uint32_t of_turns(const Params& p, const GroupedPlace<Tile>& at, int places) const {
    uint32_t added = 0;
    NO_UNROLL for (int first = 0; first < count; first += 32) {
      const int there = place_of(p, first);
      NO_UNROLL for (int turn = 0; turn < Tile::kTurns; ++turn)
          for_each_of(at, there, shuffle(places, turn), at.first_key(turn), [&](int, int key) {
            if (Tile::kTurns == 1 || lane() == turn) added |= 1u << key;
          });
    }
    return added;
  }
};

struct NoRows {
  template <class Params>
  DEV explicit NoRows(const Params&) {}
};
template <class Tile, class Fresh, bool kGiven = Fresh::kGiven>
struct FreshRowsOf {
  using Type = FreshRows<Tile, Fresh>;
};
template <class Tile, class Fresh>
struct FreshRowsOf<Tile, Fresh, false> {
  using Type = NoRows;
};

/// A warp's keys: from `first` up to `end`; the first one's place in the cache's first axis, below 0 if its page does
/// not exist; a bit mask of the keys that the launch adds.
struct KeyTile {
  int first, end, place;
  uint32_t fresh = 0;

  /// Whether key `number` is in memory.
  DEV bool holds(int number) const { return first + number < end && !(fresh >> number & 1); }
  DEV int key(int number) const { return first + number < end ? first + number : 0; }
};

/// Computes kCount columns of a row with Program, rounded to T.
template <class T, class Program, int kCount, class Params>
DEV void evaluate(const Params& p, int row, int column, uint32_t (&words)[kCount / 2]) {
  static_assert(kCount % Program::kWidth == 0);
  UNROLL for (int i = 0; i < kCount / 2; ++i) words[i] = 0;
  UNROLL for (int c = 0; c < kCount; c += Program::kWidth) {
    const auto x = Program::eval(p, row, column + c);
    UNROLL for (int e = 0; e < Program::kWidth; ++e) {
      const uint32_t bits = from_float<T>(x.v[e]).bits;
      words[(c + e) / 2] |= bits << ((c + e) % 2 * 16);
    }
  }
}
/// A lane's columns of each 16 in a product: four from 4 (lane % 4) on, for queries and keys alike.
DEV int column_of_group(int group) { return 16 * group + lane() % 4 * 4; }

/// Fragments of a tile of keys, 8 at a time: [8 keys][16 columns][words].
template <class Tile, class K>
struct GroupedKeys {
  uint32_t words[Tile::kFragments][Tile::kGroups][2];

  DEV static int number(int j) { return 8 * j + lane() / 4; }  // in the key tile
  template <class Params>
  DEV void load(const Params& p, const GroupedPlace<Tile>& at, const KeyTile& key_tile) {
    UNROLL for (int j = 0; j < Tile::kFragments; ++j) {
      const auto row = grouped_row<K>(p, at, key_tile.place + number(j), key_tile.key(number(j)));
      UNROLL for (int g = 0; g < Tile::kGroups; ++g) {
        words[j][g][0] = words[j][g][1] = 0;
        if (key_tile.holds(number(j))) copy_past_l1<8>(words[j][g], K::at(row, column_of_group(g)));
      }
    }
  }
};

/// A chunk of values in shared memory, [key][column]; each warp copies its own key tile.
template <class Tile, class V>
struct GroupedValues {
  using Rows = SwizzledRows<Tile::kDepth / 8>;
  static constexpr int kChunks = Tile::kDepth / 8;  // of 8 columns
  uint32_t start;                                   ///< in shared memory

  DEV explicit GroupedValues(int turn) : start(turn % Tile::kStages * Tile::kValueBytes) {}
  /// Where key `number` of the warp's key tile has its columns from 8 * chunk on.
  DEV uint32_t place(int number, int chunk) const { return start + Rows::at(warp() * Tile::kKeys + number, chunk); }
  /// Zeros where there are no keys.
  template <class Params>
  DEV void copy(const Params& p, const GroupedPlace<Tile>& at, const KeyTile& key_tile) const {
    UNROLL for (int i = 0; i < Tile::kKeys * kChunks; i += 32) {
      const int number = (i + lane()) / kChunks, chunk = (i + lane()) % kChunks;
      const auto row = grouped_row<V>(p, at, key_tile.place + number, key_tile.key(number));
      if (!(key_tile.fresh >> number & 1))
        cp_async16(shared_address(shared_memory()) + place(number, chunk), V::at(row, 8 * chunk),
                   key_tile.holds(number) ? 16 : 0);
    }
    cp_async_commit();
  }
  /// The right operands of two K blocks: keys from 32 * pair on, columns from 8 * tile on.
  DEV void load(uint32_t (&words)[4], int pair, int tile) const {
    ldmatrix_x4_trans(words, shared_address(shared_memory()) + start + Rows::at(32 * pair + lane(), tile));
  }
};

/// Computes key `in_tile` of the warp's key tile, which is added row `fresh`, and its value: stores them to the cache
/// and to fragments and shared memory. All lanes compute, so that no branch separates the loads for key and value.
template <class Tile, class K, class V, class Fresh, class Params, class Work>
DEV void grouped_make(const Params& p, const Work& work, const KeyTile& key_tile, int in_tile, int fresh,
                      GroupedKeys<Tile, K>& keys, const GroupedValues<Tile, V>& values) {
  using T = typename K::T;
  const int key = key_tile.first + in_tile, from = fresh * work.s.kv_heads + block_y();
  const auto to_cache = [](const T* to, const auto& x) {
    device::store(reinterpret_cast<uint32_t*>(const_cast<T*>(to)), x);
  };
  uint32_t made[Tile::kGroups][2];
  Frag<uint32_t, 4> value;
  const int chunk = lane() % (Tile::kDepth / 8);
  UNROLL for (int g = 0; g < Tile::kGroups; ++g)
      evaluate<T, typename Fresh::Key, 4>(p, from, column_of_group(g), made[g]);
  evaluate<T, typename Fresh::Value, 8>(p, from, 8 * chunk, value.v);
  const auto key_row = grouped_row<K>(p, work.at, key_tile.place + in_tile, key);
  const auto value_row = grouped_row<V>(p, work.at, key_tile.place + in_tile, key);
  if (in_tile % 8 == lane() / 4) {
    UNROLL for (int g = 0; g < Tile::kGroups; ++g) {
      to_cache(K::at(key_row, column_of_group(g)), Frag<uint32_t, 2>{{made[g][0], made[g][1]}});
      UNROLL for (int j = 0; j < Tile::kFragments; ++j) UNROLL for (int w = 0; w < 2; ++w) keys.words[j][g][w] =
          j == in_tile / 8 ? made[g][w] : keys.words[j][g][w];
    }
  }
  if (lane() < Tile::kDepth / 8) {
    to_cache(V::at(value_row, 8 * chunk), value);
    device::store(reinterpret_cast<uint32_t*>(shared_memory() + values.place(in_tile, chunk)), value);
  }
}

/// All rows' queries as fragments: [16 columns][half][words], and how many keys each of a lane's two rows sees.
template <class Tile, class T, class Q>
struct GroupedQueries {
  uint32_t words[Tile::kGroups][2][2] = {};
  int sees[2] = {};

  template <class Params>
  DEV void load(const Params& p, const AttentionSizes& s, const GroupedPlace<Tile>& at) {
    UNROLL for (int h = 0; h < Tile::kHalves; ++h) {
      const int row = 8 * h + lane() / 4, seen = at.sees(s, row);
      if (row < at.rows) sees[h] = seen < s.keys ? seen : s.keys;
    }
    UNROLL for (int g = 0; g < Tile::kGroups; ++g) UNROLL for (int h = 0; h < Tile::kHalves; ++h) {
      const int row = 8 * h + lane() / 4;
      if (row < at.rows) evaluate<T, Q, 4>(p, at.q_row + row, column_of_group(g), words[g][h]);
    }
  }
};

/// A warp's scores, then weights: [8 keys][fragment]. Keys that a row does not see are minus infinity.
template <class Tile>
struct GroupedScores {
  float v[Tile::kFragments][4];
  float* shared;

  DEV explicit GroupedScores(float* shared) : shared(shared) {
    UNROLL for (int j = 0; j < Tile::kFragments; ++j) UNROLL for (int e = 0; e < 4; ++e) v[j][e] = no_score();
  }
  template <class K, class Queries>
  DEV void multiply(int first, const GroupedKeys<Tile, K>& keys, const Queries& queries) {
    UNROLL for (int j = 0; j < Tile::kFragments; ++j) {
      UNROLL for (int e = 0; e < 4; ++e) v[j][e] = 0;
      UNROLL for (int g = 0; g < Tile::kGroups; ++g) {
        const auto& q = queries.words[g];
        const uint32_t left[4] = {q[0][0], q[1][0], q[0][1], q[1][1]};
        mma(typename K::T{}, v[j], left, keys.words[j][g]);
      }
      UNROLL for (int e = 0; e < 4; ++e) {
        const int key = first + 8 * j + 2 * (lane() % 4) + e % 2;
        if (key >= queries.sees[e / 2]) v[j][e] = no_score();
      }
    }
  }
  /// Stores each row's maximum for the block's other warps.
  DEV void leave_highest() const {
    UNROLL for (int h = 0; h < Tile::kHalves; ++h) {
      float highest = no_score();
      UNROLL for (int j = 0; j < Tile::kFragments; ++j) highest =
          max_number(highest, max_number(v[j][2 * h], v[j][2 * h + 1]));
      highest = highest_of_row(highest);
      if (lane() % 4 == 0) shared[Tile::kHighestAt + warp() * Tile::kRows + 8 * h + lane() / 4] = highest;
    }
  }
  /// Turns scores into weights relative to the chunk's tops, and stores them, rounded, with each lane's sums.
  template <class T>
  DEV void weigh(T, float scale) {
    UNROLL for (int h = 0; h < Tile::kHalves; ++h) {
      const int row = 8 * h + lane() / 4;
      float top = no_score();
      UNROLL for (int w = 0; w < Tile::kWarps; ++w) top =
          max_number(top, shared[Tile::kHighestAt + w * Tile::kRows + row]);
      top = round_up(top * scale) - lowered_in_order(T{});
      if (warp() == 0 && lane() % 4 == 0) shared[Tile::kTopsAt + row] = top;
      const float shift = shift_in_order(top);
      float sum = 0;
      UNROLL for (int j = 0; j < Tile::kFragments; ++j) {
        UNROLL for (int e = 2 * h; e < 2 * h + 2; ++e) sum += v[j][e] = weight_in_order(v[j][e], scale, shift);
        reinterpret_cast<uint32_t*>(
            shared)[Tile::kWeightsAt + row * Tile::kLine + warp() * (Tile::kKeys / 2) + 4 * j + lane() % 4] =
            pack(T{}, v[j][2 * h], v[j][2 * h + 1]);
      }
      shared[Tile::kKeyTilesAt + (warp() * Tile::kRows + row) * Tile::kClasses + lane() % 4] = sum;
    }
  }
};

/// Passes the chunk's sums of weights, and of weights times values, on to be combined. `key_tiles`: those that have
/// keys.
template <class Tile, class V, class Meeting>
DEV void grouped_values(const GroupedPlace<Tile>& at, const GroupedValues<Tile, V>& values, const Meeting& meeting,
                        const float* shared, int key_tiles) {
  using T = typename V::T;
  constexpr int kTiles = Tile::kDepth / 8, kPasses = (kTiles + Tile::kWarps - 1) / Tile::kWarps;
  const uint32_t weights = shared_address(shared + Tile::kWeightsAt);
  if (warp() < kTiles) {
    float sums[kPasses][4] = {};
    UNROLL for (int pair = 0; pair < Tile::kWarps / 2; ++pair) if (2 * pair < key_tiles) {
      uint32_t left[2][4] = {};
      if constexpr (Tile::kHalves == 2) {
        UNROLL for (int i = 0; i < 2; ++i)
            ldmatrix_x4(left[i], weights + lane() % 16 * (4 * Tile::kLine) + (4 * pair + 2 * i + lane() / 16) * 16);
      } else {
        uint32_t four[4];
        ldmatrix_x4(four, weights + lane() % 8 * (4 * Tile::kLine) + (4 * pair + lane() / 8) * 16);
        UNROLL for (int i = 0; i < 4; ++i) left[i / 2][i % 2 * 2] = four[i];
      }
      UNROLL for (int pass = 0; pass < kPasses; ++pass) {
        uint32_t right[4];
        values.load(right, pair, warp() + pass * Tile::kWarps);
        UNROLL for (int i = 0; i < 2; ++i) {
          const uint32_t of_block[2] = {right[2 * i], right[2 * i + 1]};
          mma(T{}, sums[pass], left[i], of_block);
        }
      }
    }
    UNROLL for (int pass = 0; pass < kPasses; ++pass) UNROLL for (int e = 0; e < 2 * Tile::kHalves; ++e) {
      const int row = lane() / 4 + 8 * (e / 2);
      if (row < at.rows) meeting.put(row, 8 * (warp() + pass * Tile::kWarps) + lane() % 4 * 2 + e % 2, sums[pass][e]);
    }
  }
  const int number = thread_index() % Tile::kClasses, unit = thread_index() / Tile::kClasses % Tile::kUnitsOfRow,
            row = thread_index() / Tile::kClasses / Tile::kUnitsOfRow;
  if (row >= at.rows) return;
  float total = 0;
  UNROLL for (int w = 0; w < Tile::kWarps; ++w) if (w < key_tiles) total +=
      shared[Tile::kKeyTilesAt + (w * Tile::kRows + row) * Tile::kClasses + number];
  meeting.put_total(row, unit, number, total);
  if (number == 0) meeting.put_top(row, unit, shared[Tile::kTopsAt + row]);
}

/// The warp's key tiles of all turns. Lane t holds the place of turn t's, and the mask of the keys that the launch
/// adds.
template <class Tile, class K>
struct KeyTiles {
  int places;
  uint32_t added = 0;

  template <class Params>
  DEV explicit KeyTiles(const Params& p) {
    const GroupedPlace<Tile> all(p.sizes);
    const int first = all.first_key(Tile::kTurns > 1 ? lane() % Tile::kTurns : 0);
    places = block_z() * all.capacity + first;
    if constexpr (InPages<K>) places = first < all.capacity ? K::place(p, block_z(), first) : -1;
  }
  /// `end`: number of keys.
  DEV KeyTile of(const GroupedPlace<Tile>& at, int end, int turn) const {
    if constexpr (Tile::kTurns == 1) return {at.first_key(turn), end, places, added};
    return {at.first_key(turn), end, shuffle(places, turn), shuffle(added, turn)};
  }
};

/// What a block works on: looked up once the preceding kernel has ended, with the rows that the launch adds.
template <class Tile, class K, class Keys, class Fresh>
struct GroupedWork {
  typename FreshRowsOf<Tile, Fresh>::Type fresh;
  KeyTiles<Tile, K> key_tiles;
  AttentionSizes s;
  GroupedPlace<Tile> at;

  template <class Params>
  DEV explicit GroupedWork(const Params& p) : fresh(p), key_tiles(p), s(sizes_of_entry<Keys>(p, block_z())), at(s) {
    if (block_x() == 0 && thread_index() == 0) *GroupedCounters<Tile>(s.split, at).keys = s.keys;
    if constexpr (Fresh::kGiven) key_tiles.added = fresh.of_turns(p, at, key_tiles.places);
  }
};

/// Passes on what a chunk contributes, whose turn it is; meanwhile the values of the `next` key tile are loaded if the
/// block goes on.
template <class Tile, class V, class Params, class Work, class K, class Queries, class Meeting>
DEV void grouped_chunk(const Params& p, const Work& work, int turn, const KeyTile& next,
                       const GroupedKeys<Tile, K>& keys, Queries& queries, Meeting& meeting) {
  using T = typename K::T;
  const AttentionSizes& s = work.s;
  const GroupedPlace<Tile>& at = work.at;
  const int first = at.first_key(turn);
  const bool goes_on = at.has_keys(turn + 1);
  float* shared = reinterpret_cast<float*>(shared_memory());
  GroupedScores<Tile> scores(shared);
  if (first < s.keys) {
    if (Tile::kTurns == 1) queries.load(p, s, at);
    scores.multiply(first, keys, queries);
  }
  scores.leave_highest();
  sync_block();
  if constexpr (Tile::kTurns > 1)  // all warps have used the values of the turn before
    if (goes_on) GroupedValues<Tile, V>(turn + 1).copy(p, at, next);
  scores.weigh(T{}, s.scale * 1.4426950408889634f);
  if (goes_on)
    cp_async_wait<1>();
  else
    cp_async_wait<0>();
  sync_block();
  meeting.chunk = at.chunk(turn);
  grouped_values<Tile, V>(at, GroupedValues<Tile, V>(turn), meeting, shared,
                          (s.keys - at.first_of_chunk(turn) + Tile::kKeys - 1) / Tile::kKeys);
}

template <class Tile, class Q, class K, class V, class Epilogue, class Keys = AllKeys, class Lse = NoLse,
          class Fresh = NoFresh, class Params>
DEV void attention_grouped(const Params& p) {
  static_assert(K::kWidth == 8 && V::kWidth == 8 && Epilogue::kLanes == 1);
  static_assert(Tile::kRows * Tile::kUnitsOfRow * Tile::kClasses <= Tile::kThreads && InPages<K> == InPages<V>);
  if constexpr (InPages<K>) static_assert(K::kPage % Tile::kKeys == 0);
  using T = typename K::T;
  float* shared = reinterpret_cast<float*>(shared_memory());
  griddep_launch();
  grouped_prefetch<Tile, K, V>(p);
  if constexpr (Tile::kBlocks > 1 && !Tile::kMeetsInMemory) sync_cluster();  // all blocks run and can be written to
  griddep_wait();
  const GroupedWork<Tile, K, Keys, Fresh> work(p);
  const auto& [fresh, key_tiles, s, at] = work;
  typename GroupedMeeting<Tile>::Type meeting(s, at, shared);
  KeyTile key_tile = key_tiles.of(at, s.keys, 0);
  GroupedKeys<Tile, K> keys;
  if (at.has_keys(0)) {
    keys.load(p, at, key_tile);
    GroupedValues<Tile, V>(0).copy(p, at, key_tile);
  }
  GroupedQueries<Tile, T, Q> queries;
  if (Tile::kTurns > 1 && at.has_keys(0)) queries.load(p, s, at);
  NO_UNROLL for (int turn = 0; turn < Tile::kTurns; ++turn) {
    const GroupedValues<Tile, V> values(turn);
    // Added rows that no query sees are stored too.
    if constexpr (Fresh::kGiven) {
      if (key_tile.fresh)
        fresh.for_each(p, at, key_tile.place, key_tile.first, [&](int row, int in_tile) {
          grouped_make<Tile, K, V, Fresh>(p, work, key_tile, in_tile, row, keys, values);
        });
    }
    KeyTile next = key_tile;
    GroupedKeys<Tile, K> ahead;
    const bool goes_on = at.has_keys(turn + 1);
    if constexpr (Tile::kTurns > 1) {
      if (turn + 1 < Tile::kTurns) next = key_tiles.of(at, s.keys, turn + 1);
      if (goes_on) ahead.load(p, at, next);
    }
    if (at.has_keys(turn)) grouped_chunk<Tile, V>(p, work, turn, next, keys, queries, meeting);
    if constexpr (Tile::kTurns > 1) key_tile = next, keys = ahead;
  }
  if (at.segment >= at.segments) return;
  if (meeting.meet()) grouped_end<Tile, Epilogue, Lse>(p, s, at, meeting, shared);
}

}  // namespace tenon::device
