// Attention of a few queries for each head of keys: a token's, or a few, over a cache. All rows that share keys, a
// group's heads with their queries, are one fragment. Keys are cut into runs, one a block, whose places do not depend
// on how many there are; each block's keys and values go from memory to registers at once:
//
//   scores = q k^T with mma, fragments straight from memory --shared--> tops, weights of the block's keys
//   values times weights on the plain arithmetic units: a lane has 8 columns of every kAtOnce-th key
//   sums of lanes and warps --shared--> the epilogue, or where there are several runs the workspace: the last block of
//   a head joins them in the order of keys
//
// A row's result is the same alone and among others, and for any capacity of the cache. grid.x = runs of the capacity,
// grid.y = heads of keys, grid.z = batch; Tile::kThreads, Tile::kSharedBytes. Params has a member `sizes`; Q computes
// its values, Q::eval(p, row, column), K and V are operands with kRun = 8.
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
  static constexpr int kSharedBytes = 4 * (kCameAt + 1);
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

/// A warp's scores of 32 keys as exponents of 2: [8 keys][fragment]; what a row does not see is minus infinity.
template <class Tile, class Q, class K, class Params>
DEV void grouped_scores(const Params& p, const AttentionSizes& s, const GroupedPlace<Tile>& at, float (&scores)[4][4]) {
  using T = typename K::T;
  const int member = lane() / 4, quad = lane() % 4, first = at.run * Tile::kKeys + warp() * 32;
  SkinnyPiece keys[4][Tile::kPieces];
  UNROLL for (int j = 0; j < 4; ++j) {
    const int key = first + 8 * j + member;
    const auto row = K::row(p, at.kv_row + (key < s.keys ? key : 0));
    UNROLL for (int i = 0; i < Tile::kPieces; ++i) keys[j][i].template load<K>(
        row, 32 * i + 8 * quad, key < s.keys && 32 * i + 8 * quad < Tile::kDepth);
  }
  uint32_t queries[Tile::kPieces][2][4] = {};
  UNROLL for (int i = 0; i < Tile::kPieces; ++i) UNROLL for (int h = 0; h < Tile::kHalves; ++h) {
    const int row = 8 * h + member, column = 32 * i + 8 * quad;
    if (row >= at.rows || column >= Tile::kDepth) continue;
    UNROLL for (int c = 0; c < 8; c += Q::kRun) {
      const auto x = Q::eval(p, at.q_row + row, column + c);
      UNROLL for (int e = 0; e < Q::kRun; ++e) {
        const uint32_t bits = from_float<T>(x.v[e]).bits;
        queries[i][h][(c + e) / 2] |= bits << ((c + e) % 2 * 16);
      }
    }
  }
  UNROLL for (int j = 0; j < 4; ++j) {
    UNROLL for (int e = 0; e < 4; ++e) scores[j][e] = 0;
    UNROLL for (int i = 0; i < Tile::kPieces; ++i) UNROLL for (int w = 0; w < 4; w += 2) {
      const uint32_t left[4] = {queries[i][0][w], queries[i][1][w], queries[i][0][w + 1], queries[i][1][w + 1]};
      const uint32_t right[2] = {keys[j][i].words[w], keys[j][i].words[w + 1]};
      mma(T{}, scores[j], left, right);
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
    top = highest_of_row(top);
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

/// A row's part of the result from one run of keys: sums relative to `top`, a power of two, and the sum of weights.
template <int kRun>
struct GroupedPart {
  float top, total;
  float sums[kRun];

  DEV void add(const GroupedPart& next) {
    const float highest = max_number(top, next.top);
    const float origin = highest == bits_to_float(0xff800000u) ? 0.0f : highest;
    const float mine = exp2_approximate(top - origin), theirs = exp2_approximate(next.top - origin);
    top = highest;
    total = total * mine + next.total * theirs;
    UNROLL for (int c = 0; c < kRun; ++c) sums[c] = sums[c] * mine + next.sums[c] * theirs;
  }
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

/// All runs of a row, from the workspace.
template <class Tile, int kRun>
DEV GroupedPart<kRun> grouped_total(const AttentionSizes& s, const GroupedPlace<Tile>& at, int row, int column) {
  GroupedPart<kRun> total = {bits_to_float(0xff800000u), 0.0f, {}};
  NO_UNROLL for (int run = 0; run < at.runs; ++run) {
    const float* left = s.split.workspace + (static_cast<int64_t>(at.head) * grid_x() + run) * Tile::kLeft;
    GroupedPart<kRun> part;
    copy_past_l1<4>(&part.top, left + Tile::kRows * Tile::kDepth + row);
    copy_past_l1<4>(&part.total, left + Tile::kRows * (Tile::kDepth + 1) + row);
    UNROLL for (int c = 0; c < kRun; ++c) copy_past_l1<4>(&part.sums[c], left + row * Tile::kDepth + column + c);
    total.add(part);
  }
  return total;
}

template <class Tile, class Q, class K, class V, class Epilogue, class Keys = AllKeys, class Lse = NoLse, class Params>
DEV void attention_grouped(const Params& p) {
  static_assert(K::kRun == 8 && V::kRun == 8 && Epilogue::kLanes == 1);
  using T = typename K::T;
  constexpr int kRun = Epilogue::kRun;
  float* shared = reinterpret_cast<float*>(shared_memory());
  const AttentionSizes s = sizes_of_entry<Keys>(p, block_z());
  griddep_wait();
  griddep_launch();
  const GroupedPlace<Tile> at(s);
  if (at.run >= at.runs) return;
  float scores[4][4];
  grouped_scores<Tile, Q, K>(p, s, at, scores);
  GroupedValues<Tile, V> values;
  values.load(p, s, at);
  grouped_weights<Tile, T>(scores, shared);
  sync_warp();
  values.sum(shared);
  sync_block();
  if (at.runs > 1 && !grouped_meet<Tile>(s, at, shared)) return;
  for (int i = thread_index() * kRun; i < at.rows * Tile::kDepth; i += Tile::kThreads * kRun) {
    const int row = i / Tile::kDepth, column = i % Tile::kDepth;
    const GroupedPart<kRun> part =
        at.runs > 1 ? grouped_total<Tile, kRun>(s, at, row, column) : grouped_part<Tile, kRun>(shared, row, column);
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
