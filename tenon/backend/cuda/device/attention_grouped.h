// Attention of a few queries for each head of keys: a token's, or a few, over a cache. All rows that share keys, a
// group's heads with their queries, are one fragment. Keys are cut into runs, and runs into pieces, dealt to the blocks
// of a run and their warps in turn, in an order that does not depend on how many there are. A warp takes its pieces one
// after the other, the next one's keys and values on their way, and keeps all in registers:
//
//   scores = q k^T with mma, fragments straight from memory --> weights, relative to the highest score so far
//   values times weights with mma: scores lie as its left operand; a lane's 8 columns of four keys become pairs of keys
//   sums of warps --shared--> of the block --> other blocks' shared memory (a cluster), each of which ends some
//   columns, or where there are no clusters the workspace: the last block of a run joins them runs, where there are
//   several --the workspace--> the last block of a head, or of those that end the same columns
//
// Each part counts relative to the highest top, in an order that the parts' numbers fix.
//
// Keys and values may lie in pages (InPages) of whole pieces: where a warp's pieces are is looked up beside the number
// of keys, both pieces at once, so that nothing waits for it.
//
// Rows of the cache that the launch itself makes (Fresh) are computed by the warp in whose piece they come to lie, by
// the lanes that want them, which store them too: nobody else reads them in this launch.
//
// A row's result is the same alone and among others, and for any capacity of the cache. grid.x = Tile::kBlocks for each
// run of the capacity, of which those without keys leave at once, grid.y = heads of keys, grid.z = batch;
// Tile::kThreads, Tile::kSharedBytes. Params has a member `sizes`; Q computes its values, Q::eval(p, row, column), K
// and V are operands with kRun = 8. The kernel behind may start before this one has waited (LaunchShape::starts_next).
#pragma once
#include "tenon/backend/cuda/device/attention_meeting.h"
#include "tenon/backend/cuda/device/attention_softmax.h"
#include "tenon/backend/cuda/device/gemm_skinny.h"

namespace tenon::device {

/// The row of key `key`, which in pages lies at `place`.
template <class Operand, class Tile, class Params>
DEV auto grouped_row(const Params& p, const GroupedPlace<Tile>& at, int place, int key) {
  if constexpr (InPages<Operand>)
    return Operand::row_at(p, place, block_y());
  else
    return Operand::row(p, at.kv_row + key);
}

/// In front of the wait: what this launch read when it ran last comes to the second-level cache.
template <class Tile, class K, class V, class Params>
DEV void grouped_prefetch(const Params& p) {
  const AttentionSizes& s = p.sizes;
  const GroupedPlace<Tile> at(s);
  uint32_t before;
  copy_past_l1<4>(&before, GroupedCounters<Tile>(s.split, at).keys);
  const int keys = static_cast<int>(before) < s.keys ? static_cast<int>(before) : s.keys;
  UNROLL for (int i = 0; i < Tile::kTurns; ++i) {
    const int key = at.first_key() + i * Tile::kStep + lane() % Tile::kKeys;
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
}

/// Where the warp's pieces begin in the first axis of the cache; below 0 where a page has no place. `all`: the sizes
/// with all keys.
template <class Tile>
struct GroupedPieces {
  int places[Tile::kTurns];

  template <class K, class Params>
  DEV void find(const Params& p, const AttentionSizes& all) {
    const GroupedPlace<Tile> at(all);
    UNROLL for (int i = 0; i < Tile::kTurns; ++i) {
      const int key = at.first_key() + i * Tile::kStep;
      places[i] = block_z() * at.capacity + key;
      if constexpr (InPages<K>) places[i] = key < at.capacity ? K::place(p, block_z(), key) : -1;
    }
  }
};

/// The launch writes no rows of its own.
struct NoFresh {
  static constexpr bool kGiven = false;
};
/// Rows of the launch's own among the keys of a head: Fresh has count(p) of them, row j in place(p, j) of the cache's
/// first axis. A lane knows the place of one of the first 32.
template <class Tile, class Fresh>
struct FreshRows {
  int count = 0, place = -1;
  template <class Params>
  DEV explicit FreshRows(const Params& p) : count(Fresh::count(p)) {
    if (lane() < count) place = Fresh::place(p, lane());
  }
  /// Calls make(row, key) in all lanes of the warp for each row that comes to lie in the piece of keys from `first` on,
  /// which is at `piece`.
  template <class Params, class Make>
  DEV void for_each(const Params& p, const GroupedPlace<Tile>& at, int piece, int first_key, const Make& make) const {
    NO_UNROLL for (int first = 0; first < count; first += 32) {
      int there = place;
      if (first > 0) there = first + lane() < count ? Fresh::place(p, first + lane()) : -1;
      const int in_piece = there - piece, key = first_key + in_piece;
      const bool mine = piece >= 0 && in_piece >= 0 && in_piece < Tile::kKeys && key < at.capacity;
      uint32_t found = ballot(first + lane() < count && mine);
      NO_UNROLL for (int l = 0; found >> l; ++l) if (found >> l & 1) make(first + l, shuffle(key, l));
    }
  }
};

/// 8 columns of a row that Program computes, rounded to T.
template <class T, class Program, class Params>
DEV void evaluate(const Params& p, int row, int column, uint32_t (&words)[4]) {
  UNROLL for (int i = 0; i < 4; ++i) words[i] = 0;
  UNROLL for (int c = 0; c < 8; c += Program::kRun) {
    const auto x = Program::eval(p, row, column + c);
    UNROLL for (int e = 0; e < Program::kRun; ++e) {
      const uint32_t bits = from_float<T>(x.v[e]).bits;
      words[(c + e) / 2] |= bits << ((c + e) % 2 * 16);
    }
  }
}
/// The same of row `fresh` of the launch's own, which is stored in the cache as well.
template <class Operand, class Program, class Params>
DEV void make_fresh(const Params& p, const AttentionSizes& s, const typename Operand::Row& row, int fresh, int column,
                    uint32_t (&words)[4]) {
  using T = typename Operand::T;
  evaluate<T, Program>(p, fresh * s.kv_heads + block_y(), column, words);
  device::store(reinterpret_cast<uint32_t*>(const_cast<T*>(Operand::at(row, column))),
                Frag<uint32_t, 4>{{words[0], words[1], words[2], words[3]}});
}

/// Fragments of a piece of keys, 8 at a time.
template <class Tile, class K>
struct GroupedKeys {
  SkinnyPiece pieces[Tile::kFragments][Tile::kPieces];

  DEV static int number(int j) { return 8 * j + lane() / 4; }  // in the piece
  DEV static int column(int i) { return 32 * i + lane() % 4 * 8; }
  template <class Params>
  DEV void load(const Params& p, const GroupedPlace<Tile>& at, int piece, int first, int end) {
    UNROLL for (int j = 0; j < Tile::kFragments; ++j) {
      const int key = first + number(j);
      const auto row = grouped_row<K>(p, at, piece + number(j), key < end ? key : 0);
      UNROLL for (int i = 0; i < Tile::kPieces; ++i) pieces[j][i].template load<K>(
          row, column(i), key < end && column(i) < Tile::kDepth);
    }
  }
  /// Key `key`, number `in_piece` of the piece at `piece`, is row `fresh` of the launch's own.
  template <class Program, class Params>
  DEV void make(const Params& p, const AttentionSizes& s, const GroupedPlace<Tile>& at, int piece, int key,
                int in_piece, int fresh) {
    if (in_piece % 8 != lane() / 4) return;
    UNROLL for (int i = 0; i < Tile::kPieces; ++i) {
      if (column(i) >= Tile::kDepth) continue;
      uint32_t words[4];
      make_fresh<K, Program>(p, s, grouped_row<K>(p, at, piece + in_piece, key), fresh, column(i), words);
      UNROLL for (int j = 0; j < Tile::kFragments; ++j) UNROLL for (int w = 0; w < 4; ++w) pieces[j][i].words[w] =
          j == in_piece / 8 ? words[w] : pieces[j][i].words[w];
    }
  }
};

/// A warp's queries as fragments: [piece][half][words].
template <class Tile, class T, class Q>
struct GroupedQueries {
  uint32_t words[Tile::kPieces][2][4] = {};

  template <class Params>
  DEV void load(const Params& p, const GroupedPlace<Tile>& at) {
    UNROLL for (int i = 0; i < Tile::kPieces; ++i) UNROLL for (int h = 0; h < Tile::kHalves; ++h) {
      const int row = 8 * h + lane() / 4, column = 32 * i + lane() % 4 * 8;
      if (row < at.rows && column < Tile::kDepth) evaluate<T, Q>(p, at.q_row + row, column, words[i][h]);
    }
  }
};

/// Scores of a piece of keys from `first` on as exponents of 2: [8 keys][fragment]; what a row does not see is minus
/// infinity.
template <class Tile, class K, class Queries>
DEV void grouped_scores(const AttentionSizes& s, const GroupedPlace<Tile>& at, int first,
                        const GroupedKeys<Tile, K>& keys, const Queries& queries,
                        float (&scores)[Tile::kFragments][4]) {
  const int member = lane() / 4, quad = lane() % 4;
  UNROLL for (int j = 0; j < Tile::kFragments; ++j) {
    UNROLL for (int e = 0; e < 4; ++e) scores[j][e] = 0;
    UNROLL for (int i = 0; i < Tile::kPieces; ++i) UNROLL for (int w = 0; w < 4; w += 2) {
      const auto& q = queries.words[i];
      const uint32_t left[4] = {q[0][w], q[1][w], q[0][w + 1], q[1][w + 1]};
      const uint32_t right[2] = {keys.pieces[j][i].words[w], keys.pieces[j][i].words[w + 1]};
      mma(typename K::T{}, scores[j], left, right);
    }
    UNROLL for (int e = 0; e < 4; ++e) {
      const int row = member + 8 * (e / 2), key = first + 8 * j + 2 * quad + e % 2;
      const bool seen = row < at.rows && key < at.sees(s, row) && key < s.keys;
      scores[j][e] = seen ? scores[j][e] * (s.scale * 1.4426950408889634f) : no_score();
    }
  }
}

/// A piece of values as pairs of keys are the right operand: a lane has columns 8 (lane / 4) on of each part of keys
/// 2 (lane % 4) and the next, and of those 8 behind, of each 16.
template <class Tile, class V>
struct GroupedValues {
  SkinnyPiece v[Tile::kSteps][4][Tile::kParts];

  DEV static int number(int step, int i) { return 16 * step + 2 * (lane() % 4) + i % 2 + i / 2 * 8; }
  DEV static int column(int part) { return 64 * part + lane() / 4 * 8; }
  template <class Params>
  DEV void load(const Params& p, const GroupedPlace<Tile>& at, int piece, int first, int end) {
    UNROLL for (int step = 0; step < Tile::kSteps; ++step) UNROLL for (int i = 0; i < 4; ++i) {
      const int key = first + number(step, i);
      const auto row = grouped_row<V>(p, at, piece + number(step, i), key < end ? key : 0);
      UNROLL for (int part = 0; part < Tile::kParts; ++part) v[step][i][part].template load<V>(
          row, column(part), key < end && column(part) < Tile::kDepth);
    }
  }
  template <class Program, class Params>
  DEV void make(const Params& p, const AttentionSizes& s, const GroupedPlace<Tile>& at, int piece, int key,
                int in_piece, int fresh) {
    if (in_piece / 2 % 4 != lane() % 4) return;
    UNROLL for (int part = 0; part < Tile::kParts; ++part) {
      if (column(part) >= Tile::kDepth) continue;
      uint32_t words[4];
      make_fresh<V, Program>(p, s, grouped_row<V>(p, at, piece + in_piece, key), fresh, column(part), words);
      UNROLL for (int step = 0; step < Tile::kSteps; ++step) UNROLL for (int i = 0; i < 4; ++i)
          UNROLL for (int w = 0; w < 4; ++w) v[step][i][part]
              .words[w] = number(step, i) == in_piece ? words[w] : v[step][i][part].words[w];
    }
  }
};

/// The rows so far: the highest score as an exponent of 2, this lane's part of the sum of weights, and sums of weighted
/// values, of which a lane has columns 16 (lane % 4) on of each part of row lane / 4 and of that row + 8: [part][column
/// in 8][fragment].
template <class Tile>
struct GroupedSums {
  float top[Tile::kHalves], total[Tile::kHalves] = {};
  float v[Tile::kParts][8][4] = {};

  DEV GroupedSums() { UNROLL for (int h = 0; h < Tile::kHalves; ++h) top[h] = no_score(); }
  /// Turns scores into weights relative to the new tops.
  DEV void weigh(float (&scores)[Tile::kFragments][4]) {
    UNROLL for (int h = 0; h < Tile::kHalves; ++h) {
      float next = top[h];
      UNROLL for (int j = 0; j < Tile::kFragments; ++j) next =
          max_number(next, max_number(scores[j][2 * h], scores[j][2 * h + 1]));
      next = round_up(highest_of_row(next));  // as weigh_row, so that weights round to the same numbers
      const float origin = next == no_score() ? 0.0f : next, keep = exp2_approximate(top[h] - origin);
      top[h] = next;
      total[h] *= keep;
      UNROLL for (int part = 0; part < Tile::kParts; ++part) UNROLL for (int c = 0; c < 8; ++c)
          UNROLL for (int e = 2 * h; e < 2 * h + 2; ++e) v[part][c][e] *= keep;
      UNROLL for (int j = 0; j < Tile::kFragments; ++j) UNROLL for (int e = 2 * h; e < 2 * h + 2; ++e) {
        scores[j][e] = exp2_approximate(scores[j][e] - origin);
        total[h] += scores[j][e];
      }
    }
  }
  template <class T, class Values>
  DEV void add(T, const float (&weights)[Tile::kFragments][4], const Values& values) {
    UNROLL for (int step = 0; step < Tile::kSteps; ++step) {
      uint32_t left[4] = {};
      UNROLL for (int e = 0; e < 4; ++e) if (e % 2 < Tile::kHalves) {
        const float(&from)[4] = weights[2 * step + e / 2];
        left[e] = pack(T{}, from[e % 2 * 2], from[e % 2 * 2 + 1]);
      }
      UNROLL for (int part = 0; part < Tile::kParts; ++part) UNROLL for (int c = 0; c < 8; ++c) {
        uint32_t right[2];
        UNROLL for (int i = 0; i < 2; ++i) {
          const uint32_t even = values.v[step][2 * i][part].words[c / 2],
                         odd = values.v[step][2 * i + 1][part].words[c / 2];
          right[i] = c % 2 ? even >> 16 | (odd & 0xffff0000u) : (even & 0xffffu) | odd << 16;
        }
        mma(T{}, v[part][c], left, right);
      }
    }
  }
  /// Leaves all in the block's shared memory.
  DEV void leave(float* shared) {
    UNROLL for (int h = 0; h < Tile::kHalves; ++h) {
      const int row = warp() * Tile::kRows + 8 * h + lane() / 4;
      total[h] += shuffle_xor(total[h], 1);
      total[h] += shuffle_xor(total[h], 2);
      if (lane() % 4 == 0) shared[Tile::kTopsAt + row] = top[h], shared[Tile::kTotalsAt + row] = total[h];
      UNROLL for (int part = 0; part < Tile::kParts; ++part) UNROLL for (int e = 0; e < 2; ++e) {
        const int column = 64 * part + lane() % 4 * 16 + 8 * e;
        if (column >= Tile::kDepth) continue;
        UNROLL for (int c = 0; c < 8; c += 4)
            device::store(shared + Tile::kSumsAt + row * Tile::kLine + column + c,
                          Frag<float, 4>{{v[part][c][2 * h + e], v[part][c + 1][2 * h + e], v[part][c + 2][2 * h + e],
                                          v[part][c + 3][2 * h + e]}});
      }
    }
  }
};

/// A warp's pieces of keys. `fresh`: FreshRows, if Fresh has some.
template <class Tile, class Q, class K, class V, class Fresh, class Params, class Rows>
DEV void grouped_pieces(const Params& p, const AttentionSizes& s, const GroupedPlace<Tile>& at,
                        const GroupedPieces<Tile>& pieces, const Rows& fresh, GroupedSums<Tile>& sums) {
  using T = typename K::T;
  int first = at.first_key(), piece = pieces.places[0];
  const int end = s.keys < (at.run + 1) * Tile::kRunKeys ? s.keys : (at.run + 1) * Tile::kRunKeys;
  GroupedKeys<Tile, K> keys;
  keys.load(p, at, piece, first, end);
  GroupedValues<Tile, V> values;
  values.load(p, at, piece, first, end);
  GroupedQueries<Tile, T, Q> queries;
  queries.load(p, at);
  const auto make = [&](int row, int key) {
    if constexpr (Fresh::kGiven) {
      const int in_piece = key % Tile::kKeys;
      keys.template make<typename Fresh::Key>(p, s, at, piece, key, in_piece, row);
      values.template make<typename Fresh::Value>(p, s, at, piece, key, in_piece, row);
    }
  };
  NO_UNROLL for (int turn = 0; turn < Tile::kTurns; ++turn) {
    if constexpr (Fresh::kGiven) fresh.for_each(p, at, piece, first, make);  // rows that nobody sees are stored too
    piece = pieces.places[1];                                                // of two
    if (first < end) {
      float scores[Tile::kFragments][4];
      grouped_scores<Tile>(s, at, first, keys, queries, scores);
      keys.load(p, at, piece, first + Tile::kStep, end);
      sums.weigh(scores);
      sums.add(T{}, scores, values);
      values.load(p, at, piece, first + Tile::kStep, end);
    }
    first += Tile::kStep;
  }
}

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

template <class Tile, class Q, class K, class V, class Epilogue, class Keys = AllKeys, class Lse = NoLse,
          class Fresh = NoFresh, class Params>
DEV void attention_grouped(const Params& p) {
  static_assert(K::kRun == 8 && V::kRun == 8 && Epilogue::kLanes == 1);
  static_assert(Tile::kTurns == 2 && InPages<K> == InPages<V>);
  if constexpr (InPages<K>) static_assert(K::kPage % Tile::kKeys == 0);
  float* shared = reinterpret_cast<float*>(shared_memory());
  griddep_launch();
  grouped_prefetch<Tile, K, V>(p);
  if constexpr (Tile::kBlocks > 1 && !Tile::kMeetsInMemory) sync_cluster();  // all blocks are there to be written to
  griddep_wait();
  const typename FreshRowsOf<Tile, Fresh>::Type fresh(p);
  GroupedPieces<Tile> pieces;
  pieces.template find<K>(p, p.sizes);
  const AttentionSizes s = sizes_of_entry<Keys>(p, block_z());
  const GroupedPlace<Tile> at(s);
  if (block_x() == 0 && thread_index() == 0) *GroupedCounters<Tile>(s.split, at).keys = s.keys;
  GroupedSums<Tile> sums;
  grouped_pieces<Tile, Q, K, V, Fresh>(p, s, at, pieces, fresh, sums);
  if (at.run >= at.runs) return;
  sums.leave(shared);
  sync_block();
  const typename GroupedMeeting<Tile>::Type meeting(s, at, shared);
  for (int i = thread_index(); i < at.rows * Tile::kDepth; i += Tile::kThreads)
    meeting.put(i, grouped_part<Tile>(shared, i / Tile::kDepth, i % Tile::kDepth));
  if (meeting.meet()) grouped_end<Tile, Epilogue, Lse>(p, s, at, meeting, shared);
}

}  // namespace tenon::device
