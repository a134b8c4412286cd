// Attention of a few queries for each head of keys: a token's, or a few, over a cache. All rows that share keys, a
// group's heads with their queries, are one fragment. Keys are cut into runs, one a block, whose places do not depend
// on how many there are; each block's keys and values go from memory to registers at once:
//
//   scores = q k^T with mma, fragments straight from memory --shared--> tops, weights of the block's keys
//   values times weights on the plain arithmetic units: a lane has 8 columns of every kAtOnce-th key
//   sums of lanes and warps --shared--> the epilogue, or where there are several runs the workspace: the last block of
//   a head joins them, each relative to the highest top, in an order that their numbers fix
//
// Rows of the cache that the launch itself makes (Fresh) are computed by the block in whose run they come to lie, by
// the lanes that want them, which store them too: nobody else reads them in this launch.
//
// A row's result is the same alone and among others, and for any capacity of the cache. grid.x = runs of the capacity,
// grid.y = heads of keys, grid.z = batch; Tile::kThreads, Tile::kSharedBytes. Params has a member `sizes`; Q computes
// its values, Q::eval(p, row, column), K and V are operands with kRun = 8. The kernel behind may start before this one
// has waited (LaunchShape::starts_next).
#pragma once
#include "tenon/backend/cuda/device/attention_softmax.h"
#include "tenon/backend/cuda/device/gemm_skinny.h"

namespace tenon::device {

/// Heads of kDepth_ columns (a power of two, 16 to 128), up to kRows_ (8 or 16) rows a head of keys.
template <int kDepth_, int kRows_>
struct GroupedTile {
  static constexpr int kDepth = kDepth_, kRows = kRows_, kHalves = kRows / 8;
  static constexpr int kWarps = 8, kThreads = 32 * kWarps, kKeys = 32 * kWarps;  ///< keys: of a run
  static constexpr int kPieces = (kDepth + 31) / 32;
  static constexpr int kLanes = kDepth / 8, kAtOnce = 32 / kLanes, kPasses = 32 / kAtOnce;
  // Shared memory, in floats: sums of the warps; weights by key; tops and totals by warp; what came.
  static constexpr int kSumsAt = 0, kWeightsAt = kWarps * kRows * kDepth, kTopsAt = kWeightsAt + kKeys * kRows;
  static constexpr int kTotalsAt = kTopsAt + kWarps * kRows, kCameAt = kTotalsAt + kWarps * kRows;
  static constexpr int kFreshAt = kCameAt + 1;  ///< by key of the run, which of the launch's own rows it is
  static constexpr int kSharedBytes = 4 * (kFreshAt + kKeys);
  /// Joining runs: so many at a time, a thread four columns of a row (or of several rows) of every kParts-th.
  static constexpr int kJoined = 64, kQuads = kRows * kDepth / 4, kAhead = 8;
  static constexpr int kParts = kThreads > kQuads ? kThreads / kQuads : 1;
  static constexpr int kTurns = kQuads > kThreads ? kQuads / kThreads : 1;
  /// What a run leaves in the workspace: sums, tops, totals.
  static constexpr int kLeft = kRows * (kDepth + 2);
  static_assert(kDepth >= 16 && kDepth <= 128 && (kDepth & (kDepth - 1)) == 0);
};

/// Which part of the problem a block has.
template <class Tile>
struct GroupedPlace {
  int rows, q_row, kv_row;  ///< of the group; row 0 of each
  int run, runs;            ///< runs: those that have keys, or one
  int head;                 ///< of keys, over the batch

  DEV explicit GroupedPlace(const AttentionSizes& s)
      : rows(s.heads / s.kv_heads * s.queries),
        q_row((block_z() * s.kv_heads + block_y()) * rows),
        kv_row((block_z() * s.kv_heads + block_y()) * (s.capacity ? s.capacity : s.keys)),
        run(block_x()),
        runs(s.keys > Tile::kKeys ? (s.keys + Tile::kKeys - 1) / Tile::kKeys : 1),
        head(block_z() * s.kv_heads + block_y()) {}
  /// Keys that row r sees.
  DEV static int sees(const AttentionSizes& s, int r) {
    return s.causal ? r % s.queries + 1 + s.keys - s.queries : s.keys;
  }
};

/// In front of the wait: what this launch read when it ran last comes to the second-level cache. Behind the counters
/// stands how many keys of each head that were.
template <class Tile, class K, class V, class Params>
DEV void grouped_prefetch(const Params& p) {
  const AttentionSizes& s = p.sizes;
  if (s.split.counters == nullptr) return;
  const GroupedPlace<Tile> at(s);
  const int key = at.run * Tile::kKeys + thread_index();
  uint32_t keys;
  copy_past_l1<4>(&keys, s.split.counters + grid_y() * grid_z() + at.head);
  if (key >= s.keys || key >= static_cast<int>(keys)) return;
  const auto of_keys = K::row(p, at.kv_row + key);
  const auto of_values = V::row(p, at.kv_row + key);
  UNROLL for (int c = 0; c < Tile::kDepth; c += 64) {
    prefetch_l2(K::at(of_keys, c));
    prefetch_l2(V::at(of_values, c));
  }
}

/// The launch writes no rows of its own.
struct NoFresh {
  static constexpr bool kGiven = false;
};
/// Notes in shared memory which keys of the block's run are rows of the launch's own, and which of those: Fresh has
/// count(p) of them, row j in place(p, j) of the cache's first axis.
template <class Tile, class Fresh, class Params>
DEV void find_fresh(const Params& p, const AttentionSizes& s, const GroupedPlace<Tile>& at, float* shared) {
  static_assert(Tile::kThreads == Tile::kKeys);
  int* const fresh = reinterpret_cast<int*>(shared + Tile::kFreshAt);
  const int capacity = s.capacity ? s.capacity : s.keys, first = at.run * Tile::kKeys, keys = capacity - first;
  fresh[thread_index()] = -1;
  sync_block();
  for (int j = thread_index(); j < Fresh::count(p); j += Tile::kThreads) {
    const int i = Fresh::place(p, j) - block_z() * capacity - first;
    if (i >= 0 && i < keys && i < Tile::kKeys) fresh[i] = j;
  }
  sync_block();
}

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

/// Fragments of a warp's 32 keys, 8 at a time.
template <class Tile, class K>
struct GroupedKeys {
  SkinnyPiece pieces[4][Tile::kPieces];

  DEV static int number(int j) { return warp() * 32 + 8 * j + lane() / 4; }  // in the run
  DEV static int column(int i) { return 32 * i + lane() % 4 * 8; }
  template <class Params>
  DEV void load(const Params& p, const AttentionSizes& s, const GroupedPlace<Tile>& at) {
    UNROLL for (int j = 0; j < 4; ++j) {
      const int key = at.run * Tile::kKeys + number(j);
      const auto row = K::row(p, at.kv_row + (key < s.keys ? key : 0));
      UNROLL for (int i = 0; i < Tile::kPieces; ++i) pieces[j][i].template load<K>(
          row, column(i), key < s.keys && column(i) < Tile::kDepth);
    }
  }
  template <class Program, class Params>
  DEV void make(const Params& p, const AttentionSizes& s, const GroupedPlace<Tile>& at, const int* fresh) {
    UNROLL for (int j = 0; j < 4; ++j) {
      if (fresh[number(j)] < 0) continue;
      const auto row = K::row(p, at.kv_row + at.run * Tile::kKeys + number(j));
      UNROLL for (int i = 0; i < Tile::kPieces; ++i) if (column(i) < Tile::kDepth)
          make_fresh<K, Program>(p, s, row, fresh[number(j)], column(i), pieces[j][i].words);
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

/// A warp's scores of 32 keys as exponents of 2: [8 keys][fragment]; what a row does not see is minus infinity.
template <class Tile, class K, class Queries>
DEV void grouped_scores(const AttentionSizes& s, const GroupedPlace<Tile>& at, const GroupedKeys<Tile, K>& keys,
                        const Queries& queries, float (&scores)[4][4]) {
  const int member = lane() / 4, quad = lane() % 4, first = at.run * Tile::kKeys + warp() * 32;
  UNROLL for (int j = 0; j < 4; ++j) {
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
      scores[j][e] = seen ? scores[j][e] * (s.scale * 1.4426950408889634f) : bits_to_float(0xff800000u);
    }
  }
}

/// Leaves the weights of the block's keys, rounded to T, in shared memory, and by warp the tops and totals of rows: the
/// tops are those of the block.
template <class Tile, class T>
DEV void grouped_weights(float (&scores)[4][4], float* shared) {
  const int member = lane() / 4, quad = lane() % 4;
  UNROLL for (int h = 0; h < Tile::kHalves; ++h) {
    float top = bits_to_float(0xff800000u);
    UNROLL for (int j = 0; j < 4; ++j) top = max_number(top, max_number(scores[j][2 * h], scores[j][2 * h + 1]));
    top = round_up(highest_of_row(top));  // as weigh_row, so that weights round to the same numbers
    if (quad == 0) shared[Tile::kTopsAt + warp() * Tile::kRows + 8 * h + member] = top;
  }
  sync_block();
  UNROLL for (int h = 0; h < Tile::kHalves; ++h) {
    const int row = 8 * h + member;
    float top = shared[Tile::kTopsAt + row];
    UNROLL for (int w = 1; w < Tile::kWarps; ++w) top = max_number(top, shared[Tile::kTopsAt + w * Tile::kRows + row]);
    const float origin = top == bits_to_float(0xff800000u) ? 0.0f : top;
    float total = 0;
    UNROLL for (int j = 0; j < 4; ++j) UNROLL for (int e = 0; e < 2; ++e) {
      const float weight = exp2_approximate(scores[j][2 * h + e] - origin);
      total += weight;
      shared[Tile::kWeightsAt + (warp() * 32 + 8 * j + 2 * quad + e) * Tile::kRows + row] =
          to_float(from_float<T>(weight));
    }
    total += shuffle_xor(total, 1);
    total += shuffle_xor(total, 2);
    if (quad == 0) shared[Tile::kTotalsAt + warp() * Tile::kRows + row] = total;
  }
}

/// Values of a warp's 32 keys: a lane's 8 columns of key pass * kAtOnce + lane / kLanes.
template <class Tile, class V>
struct GroupedValues {
  using T = typename V::T;
  Frag<T, 8> v[Tile::kPasses];

  template <class Params>
  DEV void load(const Params& p, const AttentionSizes& s, const GroupedPlace<Tile>& at) {
    UNROLL for (int i = 0; i < Tile::kPasses; ++i) {
      const int key = at.run * Tile::kKeys + warp() * 32 + i * Tile::kAtOnce + lane() / Tile::kLanes;
      UNROLL for (int c = 0; c < 8; ++c) v[i].v[c] = from_float<T>(0.0f);
      if (key < s.keys) copy_past_l1<16>(&v[i], V::at(V::row(p, at.kv_row + key), lane() % Tile::kLanes * 8));
    }
  }
  template <class Program, class Params>
  DEV void make(const Params& p, const AttentionSizes& s, const GroupedPlace<Tile>& at, const int* fresh) {
    UNROLL for (int i = 0; i < Tile::kPasses; ++i) {
      const int number = warp() * 32 + i * Tile::kAtOnce + lane() / Tile::kLanes;
      if (fresh[number] < 0) continue;
      const auto row = V::row(p, at.kv_row + at.run * Tile::kKeys + number);
      uint32_t words[4];
      make_fresh<V, Program>(p, s, row, fresh[number], lane() % Tile::kLanes * 8, words);
      UNROLL for (int c = 0; c < 8; ++c) v[i].v[c].bits = static_cast<uint16_t>(words[c / 2] >> (c % 2 * 16));
    }
  }
  /// Leaves the warp's sums of weighted values in shared memory, [warp][row][column].
  DEV void sum(float* shared) const {
    float sums[Tile::kRows][8] = {};
    UNROLL for (int i = 0; i < Tile::kPasses; ++i) {
      const Frag<float, 8> x = to_floats(v[i]);
      const float* weights =
          shared + Tile::kWeightsAt + (warp() * 32 + i * Tile::kAtOnce + lane() / Tile::kLanes) * Tile::kRows;
      UNROLL for (int r = 0; r < Tile::kRows; r += 4) {
        const Frag<float, 4> w = device::load<float, 4>(weights + r);
        UNROLL for (int e = 0; e < 4; ++e) { UNROLL for (int c = 0; c < 8; ++c) sums[r + e][c] += w.v[e] * x.v[c]; }
      }
    }
    UNROLL for (int r = 0; r < Tile::kRows; ++r) {
      UNROLL for (int c = 0; c < 8; ++c) {
        UNROLL for (int mask = Tile::kLanes; mask < 32; mask *= 2) sums[r][c] += shuffle_xor(sums[r][c], mask);
      }
      if (lane() < Tile::kLanes) {
        float* to = shared + Tile::kSumsAt + (warp() * Tile::kRows + r) * Tile::kDepth + lane() * 8;
        UNROLL for (int c = 0; c < 8; c += 4)
            device::store(to + c, Frag<float, 4>{{sums[r][c], sums[r][c + 1], sums[r][c + 2], sums[r][c + 3]}});
      }
    }
  }
};

/// A row's part of the result: sums relative to `top`, a power of two, and the sum of weights.
template <int kRun>
struct GroupedPart {
  float top, total;
  float sums[kRun];
};

/// The part of this block, from shared memory.
template <class Tile, int kRun>
DEV GroupedPart<kRun> grouped_part(const float* shared, int row, int column) {
  GroupedPart<kRun> part = {bits_to_float(0xff800000u), 0.0f, {}};
  UNROLL for (int w = 0; w < Tile::kWarps; ++w) {
    part.top = max_number(part.top, shared[Tile::kTopsAt + w * Tile::kRows + row]);
    part.total += shared[Tile::kTotalsAt + w * Tile::kRows + row];
    UNROLL for (int c = 0; c < kRun; ++c) part.sums[c] +=
        shared[Tile::kSumsAt + (w * Tile::kRows + row) * Tile::kDepth + column + c];
  }
  return part;
}

/// Leaves the part of this block in the workspace. True in the last block of a head of keys.
template <class Tile>
DEV bool grouped_meet(const AttentionSizes& s, const GroupedPlace<Tile>& at, float* shared) {
  float* left = s.split.workspace + (static_cast<int64_t>(at.head) * grid_x() + at.run) * Tile::kLeft;
  for (int i = thread_index(); i < at.rows * Tile::kDepth; i += Tile::kThreads) {
    const GroupedPart<1> part = grouped_part<Tile, 1>(shared, i / Tile::kDepth, i % Tile::kDepth);
    left[i] = part.sums[0];
    if (i % Tile::kDepth == 0) {
      left[Tile::kRows * Tile::kDepth + i / Tile::kDepth] = part.top;
      left[Tile::kRows * (Tile::kDepth + 1) + i / Tile::kDepth] = part.total;
    }
  }
  fence_device();
  sync_block();
  uint32_t* came = reinterpret_cast<uint32_t*>(shared + Tile::kCameAt);
  if (thread_index() == 0) *came = atomic_add(s.split.counters + at.head, 1u);
  sync_block();
  if (*came != static_cast<uint32_t>(at.runs - 1)) return false;
  if (thread_index() == 0) s.split.counters[at.head] = 0;
  fence_device();
  return true;
}

/// What the runs of a head have left, while they are joined: tops and totals of a warp's rows, one after the other, and
/// sums of a thread's places, four columns of a row each, of every kParts-th run.
template <class Tile>
struct GroupedRuns {
  static constexpr int kRows = Tile::kRows, kJoined = Tile::kJoined, kRowsOfWarp = kRows / Tile::kWarps;
  const float* left;  ///< in the workspace
  float* shared;
  float tops[kRowsOfWarp], totals[kRowsOfWarp] = {};
  Frag<float, 4> sums[Tile::kTurns] = {};

  DEV GroupedRuns(const AttentionSizes& s, const GroupedPlace<Tile>& at, float* shared)
      : left(s.split.workspace + static_cast<int64_t>(at.head) * grid_x() * Tile::kLeft), shared(shared) {
    UNROLL for (int i = 0; i < kRowsOfWarp; ++i) tops[i] = bits_to_float(0xff800000u);
  }
  DEV const float* of(int run) const { return left + static_cast<int64_t>(run) * Tile::kLeft; }
  DEV static int part() { return Tile::kParts > 1 ? thread_index() / Tile::kQuads : 0; }
  DEV static int place(int turn) { return thread_index() % Tile::kQuads + turn * Tile::kThreads; }

  /// A warp a row: leaves in shared memory what each of `runs` runs counts, [run][row], and what all before do now.
  DEV void weigh(int first, int runs, int rows) {
    constexpr int kEach = kJoined / 32;
    UNROLL for (int i = 0; i < kRowsOfWarp; ++i) {
      const int row = i * Tile::kWarps + warp();
      float top[kEach], total[kEach], highest = tops[i], sum = 0;
      UNROLL for (int j = 0; j < kEach; ++j) {
        const int run = 32 * j + lane();
        top[j] = bits_to_float(0xff800000u), total[j] = 0;
        if (run >= runs || row >= rows) continue;
        const float* const from = of(first + run) + kRows * Tile::kDepth + row;
        copy_past_l1<4>(&top[j], from);
        copy_past_l1<4>(&total[j], from + kRows);
      }
      UNROLL for (int j = 0; j < kEach; ++j) highest = max_number(highest, top[j]);
      UNROLL for (int mask = 16; mask > 0; mask /= 2) highest = max_number(highest, shuffle_xor(highest, mask));
      const float origin = highest == bits_to_float(0xff800000u) ? 0.0f : highest;
      const float before = exp2_approximate(tops[i] - origin);
      UNROLL for (int j = 0; j < kEach; ++j) {
        const float share = exp2_approximate(top[j] - origin);
        shared[Tile::kWeightsAt + (32 * j + lane()) * kRows + row] = share;
        sum += share * total[j];
      }
      UNROLL for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
      tops[i] = highest, totals[i] = totals[i] * before + sum;
      if (lane() == 0) shared[Tile::kTopsAt + row] = before;
    }
  }
  DEV void add(int first, int runs) {
    UNROLL for (int turn = 0; turn < Tile::kTurns; ++turn) {
      const int row = place(turn) / (Tile::kDepth / 4);
      const float before = shared[Tile::kTopsAt + row];
      UNROLL for (int e = 0; e < 4; ++e) sums[turn].v[e] *= before;
      NO_UNROLL for (int run = part(); run < runs; run += Tile::kParts * Tile::kAhead) {
        Frag<float, 4> x[Tile::kAhead];
        UNROLL for (int i = 0; i < Tile::kAhead; ++i) {
          const int there = run + i * Tile::kParts < runs ? run + i * Tile::kParts : run;
          copy_past_l1<16>(&x[i], of(first + there) + place(turn) * 4);
        }
        UNROLL for (int i = 0; i < Tile::kAhead; ++i) {
          if (run + i * Tile::kParts >= runs) continue;
          const float share = shared[Tile::kWeightsAt + (run + i * Tile::kParts) * kRows + row];
          UNROLL for (int e = 0; e < 4; ++e) sums[turn].v[e] += share * x[i].v[e];
        }
      }
    }
  }
  /// Leaves them in shared memory as if warp 0, or as many as there are parts, had found all and the others nothing.
  DEV void leave() const {
    UNROLL for (int i = 0; i < kRowsOfWarp; ++i) {
      const int row = i * Tile::kWarps + warp();
      if (lane() >= Tile::kWarps) continue;
      shared[Tile::kTopsAt + lane() * kRows + row] = lane() ? bits_to_float(0xff800000u) : tops[i];
      shared[Tile::kTotalsAt + lane() * kRows + row] = lane() ? 0.0f : totals[i];
    }
    constexpr int kSums = kRows * Tile::kDepth;
    for (int i = Tile::kParts * kSums + thread_index(); i < Tile::kWarps * kSums; i += Tile::kThreads)
      shared[Tile::kSumsAt + i] = 0;
    UNROLL for (int turn = 0; turn < Tile::kTurns; ++turn)
        device::store(shared + Tile::kSumsAt + part() * kSums + place(turn) * 4, sums[turn]);
  }
};

/// Joins all runs of the block's rows.
template <class Tile>
DEV void grouped_join(const AttentionSizes& s, const GroupedPlace<Tile>& at, float* shared) {
  GroupedRuns<Tile> all(s, at, shared);
  NO_UNROLL for (int first = 0; first < at.runs; first += Tile::kJoined) {
    const int runs = at.runs - first < Tile::kJoined ? at.runs - first : Tile::kJoined;
    sync_block();
    all.weigh(first, runs, at.rows);
    sync_block();
    all.add(first, runs);
  }
  sync_block();
  all.leave();
  sync_block();
}

template <class Tile, class Q, class K, class V, class Epilogue, class Keys = AllKeys, class Lse = NoLse,
          class Fresh = NoFresh, class Params>
DEV void attention_grouped(const Params& p) {
  static_assert(K::kRun == 8 && V::kRun == 8 && Epilogue::kLanes == 1);
  using T = typename K::T;
  constexpr int kRun = Epilogue::kRun;
  float* shared = reinterpret_cast<float*>(shared_memory());
  griddep_launch();
  grouped_prefetch<Tile, K, V>(p);
  const AttentionSizes s = sizes_of_entry<Keys>(p, block_z());
  griddep_wait();
  const GroupedPlace<Tile> at(s);
  if (s.split.counters != nullptr && at.run == 0 && thread_index() == 0)
    s.split.counters[grid_y() * grid_z() + at.head] = s.keys;
  if (!Fresh::kGiven && at.run >= at.runs) return;
  GroupedKeys<Tile, K> keys;
  keys.load(p, s, at);
  GroupedValues<Tile, V> values;
  values.load(p, s, at);
  GroupedQueries<Tile, T, Q> queries;
  queries.load(p, at);
  if constexpr (Fresh::kGiven) {
    find_fresh<Tile, Fresh>(p, s, at, shared);
    const int* const fresh = reinterpret_cast<const int*>(shared + Tile::kFreshAt);
    keys.template make<typename Fresh::Key>(p, s, at, fresh);
    values.template make<typename Fresh::Value>(p, s, at, fresh);
    if (at.run >= at.runs) return;
  }
  float scores[4][4];
  grouped_scores<Tile>(s, at, keys, queries, scores);
  grouped_weights<Tile, T>(scores, shared);
  sync_warp();
  values.sum(shared);
  sync_block();
  if (at.runs > 1) {
    if (!grouped_meet<Tile>(s, at, shared)) return;
    grouped_join<Tile>(s, at, shared);
  }
  for (int i = thread_index() * kRun; i < at.rows * Tile::kDepth; i += Tile::kThreads * kRun) {
    const int row = i / Tile::kDepth, column = i % Tile::kDepth;
    const GroupedPart<kRun> part = grouped_part<Tile, kRun>(shared, row, column);
    if constexpr (Lse::kWanted)
      if (column == 0)
        Lse::store(p, at.q_row + row,
                   (part.total == 0.0f ? part.top : part.top + log2_approximate(part.total)) * 0.6931471805599453f);
    Frag<float, kRun> acc[1];
    const float share = reciprocal_approximate(part.total);
    UNROLL for (int c = 0; c < kRun; ++c) acc[0].v[c] = part.sums[c] * share;
    Epilogue::store(p, at.q_row + row, column, Epilogue::compute(p, at.q_row + row, column, acc));
  }
}

}  // namespace tenon::device
