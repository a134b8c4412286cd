// What the attention cores share: a block's part of the problem, scores and weights as fragments of a warp, and the
// streaming softmax between the two products. A Tile has kQueries, kKeys, kValueColumns, kWarpM and kWarpN (a warp has
// all columns of its rows).
#pragma once
#include "tenon/backend/cuda/device/attention/attention_keys.h"
#include "tenon/backend/cuda/device/products/mma_results.h"

namespace tenon::device {

/// A block's part of the problem.
template <class Tile>
struct AttentionPlace {
  int query, column = 0;  ///< first of the tile
  int q_row, kv_row;      ///< row 0 of the head
  int seen;               ///< keys visible to any query of the tile
  int seen_by_first;      ///< keys visible to the tile's first query, and so to all
  int key_tiles;

  DEV explicit AttentionPlace(const AttentionSizes& s) : AttentionPlace(s, block_x(), grid_x()) {}
  /// The part of block `index` of a head's `count` blocks.
  DEV AttentionPlace(const AttentionSizes& s, int index, int count) {
    const int parts = (s.depth + Tile::kValueColumns - 1) / Tile::kValueColumns;
    const int tile = index / parts, tiles = count / parts;
    column = index % parts * Tile::kValueColumns;
    // Under a causal mask the last queries see the most keys: they start first.
    look(s, block_z(), block_y(), (tiles - 1 - tile) * Tile::kQueries, Tile::kQueries);
  }
  AttentionPlace() = default;
  /// `queries` queries of a head, starting at `first`.
  DEV void look(const AttentionSizes& s, int batch, int head, int first, int queries) {
    query = first;
    q_row = (batch * s.heads + head) * s.queries;
    kv_row = (batch * s.kv_heads + head / (s.heads / s.kv_heads)) * (s.capacity ? s.capacity : s.keys);
    const int end = query + queries < s.queries ? query + queries : s.queries;
    seen = s.causal ? end + s.keys - s.queries : s.keys;
    seen_by_first = s.causal ? query + 1 + s.keys - s.queries : s.keys;
    key_tiles = seen > 0 ? (seen + Tile::kKeys - 1) / Tile::kKeys : 0;
  }
};

/// A warp's scores: [16 queries][8 keys] fragments in the layout of mma and wgmma.
template <class Tile>
struct AttentionScores {
  static constexpr int kRows = Tile::kWarpM / 16, kColumns = Tile::kKeys / 8;
  float v[kRows][kColumns][4];

  /// Masks what a query does not see in the tile of keys that starts at `key`, in fragments from kFrom on.
  template <int kFrom = 0>
  DEV void mask(const AttentionSizes& s, int query, int key) {
    UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int half = 0; half < 2; ++half) {
      const int mine = query + warp() * Tile::kWarpM + 16 * i + lane() / 4 + 8 * half;
      const int sees = s.causal && mine < s.queries ? mine + 1 + s.keys - s.queries : s.keys;
      const int here = sees - key - lane() % 4 * 2;
      UNROLL for (int j = kFrom; j < kColumns; ++j) UNROLL for (int e = 0; e < 2; ++e) if (8 * j + e >= here)
          v[i][j][2 * half + e] = minus_infinity();
    }
  }

  DEV static float minus_infinity() { return bits_to_float(0xff800000u); }
};

DEV uint32_t pack(BF16, float low, float high) { return floats_to_bf16(low, high); }
DEV uint32_t pack(F16, float low, float high) { return floats_to_f16(low, high); }

/// The left operand's fragments of the second product.
template <class Tile>
struct AttentionWeights {
  uint32_t f[Tile::kKeys / 16][Tile::kWarpM / 16][4];

  template <class T>
  DEV void round(T, const AttentionScores<Tile>& s) {
    UNROLL for (int k_block = 0; k_block < Tile::kKeys / 16; ++k_block) UNROLL for (int i = 0; i < s.kRows; ++i)
        UNROLL for (int e = 0; e < 4; ++e) {
      const float(&from)[4] = s.v[i][2 * k_block + e / 2];
      f[k_block][i][e] = pack(T{}, from[e % 2 * 2], from[e % 2 * 2 + 1]);
    }
  }
};

/// The maximum of `next` and a lane's scores of row `half` of fragment row i. The maximum ignores NaNs; their weights
/// do not.
template <class Tile>
DEV float highest_score(const AttentionScores<Tile>& s, int i, int half, float next) {
  UNROLL for (int j = 0; j < s.kColumns; ++j) next =
      max_number(next, max_number(s.v[i][j][2 * half], s.v[i][j][2 * half + 1]));
  return next;
}
/// The maximum over the four lanes that hold a row.
DEV float highest_of_row(float next) {
  next = max_number(next, shuffle_xor(next, 1));
  return max_number(next, shuffle_xor(next, 2));
}

/// Weights with an order: 2^(score * scale - top), with the exponent rounded to a multiple of 2^-16, so that relative
/// to another (integer) top only the exponent bits change. shift_in_order: the shift for a top.
constexpr float kInOrderShift = 192.0f;  // sums of it and values from -64 up are in [128, 256)
DEV float shift_in_order(float top) { return kInOrderShift - (top == bits_to_float(0xff800000u) ? 0.0f : top); }
DEV float weight_in_order(float score, float scale, float shift) {
  return exp2_approximate(fused_multiply_add(score, scale, shift) - kInOrderShift);
}

/// How far below the highest score the top lies with an order: F16 weights go up to 2^14, otherwise small ones would be
/// rounded to fewer bits, and differently for another top.
DEV float lowered_in_order(BF16) { return 0; }
DEV float lowered_in_order(F16) { return 14; }

/// Tile::kOrder of a tile that sums in the common order (OrderedSums), else 0.
template <class Tile>
DEV constexpr int order_of() {
  if constexpr (requires { Tile::kOrder; })
    return Tile::kOrder;
  else
    return 0;
}

/// Turns these scores into weights relative to `origin`, 2^(score * scale - origin); returns `sum` plus the weights.
template <class Tile>
DEV float weigh_scores(AttentionScores<Tile>& s, int i, int half, float scale, float origin, float sum) {
  if constexpr (order_of<Tile>() > 0) {
    UNROLL for (int j = 0; j < s.kColumns; j += 2) {
      float pair = 0;
      UNROLL for (int k = j; k < j + 2; ++k) UNROLL for (int e = 2 * half; e < 2 * half + 2; ++e) pair += s.v[i][k][e] =
          weight_in_order(s.v[i][k][e], scale, kInOrderShift - origin);
      sum += pair;
    }
    return sum;
  }
  UNROLL for (int j = 0; j < s.kColumns; ++j) UNROLL for (int e = 0; e < 2; ++e) {
    float& weight = s.v[i][j][2 * half + e];
    weight = exp2_approximate(fused_multiply_add(weight, scale, -origin));
    sum += weight;
  }
  return sum;
}

/// A row's state in the streaming softmax. `top`: the highest score as an exponent of 2, rounded up to an integer:
/// weights relative to different tops then differ by a power of two, and round identically in every tile and kernel.
/// `keep`: the factor for earlier sums under the new top. `total`: this lane's part of the sum of weights.
struct SoftmaxRow {
  float &top, &keep, &total;
};

/// Turns one row of scores into weights relative to its new top. `lowered`: how far below the highest score the top is
/// set. A row that has seen nothing yet keeps zeros.
template <class Tile>
DEV void weigh_row(AttentionScores<Tile>& s, int i, int half, float scale, const SoftmaxRow& row, float lowered = 0) {
  const float highest = highest_of_row(highest_score(s, i, half, s.minus_infinity()));
  const float next = max_number(row.top, round_up(highest * scale) - lowered);
  const float origin = next == s.minus_infinity() ? 0.0f : next;
  row.keep = exp2_approximate(row.top - origin);
  row.top = next;
  row.total = weigh_scores(s, i, half, scale, origin, row.total * row.keep);
}

/// Divides sums of weighted values by the sums of weights, of which each lane has a part.
template <class Tile>
DEV void divide_sums(MmaSums<Tile>& sums, const float (&total)[Tile::kWarpM / 16][2]) {
  UNROLL for (int i = 0; i < sums.kRows; ++i) UNROLL for (int half = 0; half < 2; ++half) {
    float sum = total[i][half];
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    const float part = reciprocal_approximate(sum);
    UNROLL for (int j = 0; j < sums.kColumns; ++j) UNROLL for (int e = 2 * half; e < 2 * half + 2; ++e)
        sums.v[i][j][e] *= part;
  }
}

/// The state of the streaming softmax: of each row (SoftmaxRow).
template <class Tile>
struct StreamingSoftmax {
  static constexpr int kRows = Tile::kWarpM / 16;
  float top[kRows][2], total[kRows][2];
  float keep[kRows][2];  ///< the factor that the last weights imply for earlier sums
  float scale;           ///< for scores as exponents of 2

  DEV explicit StreamingSoftmax(float natural_scale) : scale(natural_scale * 1.4426950408889634f) {
    UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int half = 0; half < 2; ++half) top[i][half] =
        AttentionScores<Tile>::minus_infinity(),
                                                                                       total[i][half] = 0.0f;
  }

  /// The factor that rescales weights relative to `top` to a top `next`, which is not lower.
  DEV float kept(float top, float next) const {
    return exp2_approximate(top - (next == AttentionScores<Tile>::minus_infinity() ? 0.0f : next));
  }

  /// Turns scores into weights relative to the new tops; `rescale` then adjusts earlier sums to them.
  DEV void weigh(AttentionScores<Tile>& s, float lowered = 0) {
    UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int half = 0; half < 2; ++half)
        weigh_row(s, i, half, scale, {top[i][half], keep[i][half], total[i][half]}, lowered);
  }

  DEV void rescale(auto&... sums) const {
    bool moved = false;  // usually no top moves
    UNROLL for (int i = 0; i < kRows; ++i) moved = moved || keep[i][0] != 1.0f || keep[i][1] != 1.0f;
    if (ballot(moved) == 0) return;
    const auto one = [&](MmaSums<Tile>& x) {
      UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int j = 0; j < x.kColumns; ++j)
          UNROLL for (int e = 0; e < 4; ++e) x.v[i][j][e] *= keep[i][e / 2];
    };
    (one(sums), ...);
  }

  /// Always zero, but depends on all weights so far.
  DEV int negative() const {
    bool below = false;
    UNROLL for (int i = 0; i < kRows; ++i) below = below || total[i][0] < 0.0f || total[i][1] < 0.0f;
    return below;
  }

  DEV void divide(MmaSums<Tile>& sums) const { divide_sums(sums, total); }
};

/// Sums in the order of attention_grouped.h, whatever the tiles: weights in tiles of 16 keys; weights times values
/// one K block after another within a chunk of 128 keys, starting from zero; chunks are added to the sums of a segment
/// of 1024 keys, and segments to the total. A Tile has kOrder, 2 if there may be several segments, whose sums are in
/// shared memory since few texts have them.
template <class Tile, int kOrder = order_of<Tile>()>
struct OrderedSums {
  static constexpr int kRows = Tile::kWarpM / 16, kChunkTiles = 128 / Tile::kKeys, kSegmentTiles = 1024 / Tile::kKeys;
  MmaSums<Tile> segment = {};
  float segment_total[kRows][2] = {}, all_total[kRows][2] = {};
  float segments_top[kRows][2];  ///< of the segments' sums
  float* segments;               ///< this thread's first; the rest follow Tile::kSumThreads floats apart

  DEV OrderedSums() : segments(reinterpret_cast<float*>(shared_memory() + Tile::kSegmentsAt) + thread_index()) {}
  /// Whether tile `tile` begins a chunk, so that its product starts new sums.
  DEV static bool begins(int tile) { return kChunkTiles == 1 || tile % kChunkTiles == 0; }

  /// softmax.weigh(scores) for tile `tile`.
  template <class T>
  DEV void weigh(T, AttentionScores<Tile>& scores, StreamingSoftmax<Tile>& softmax, int tile) {
    UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int half = 0; half < 2; ++half) {
      if (begins(tile)) segment_total[i][half] += softmax.total[i][half], softmax.total[i][half] = 0;
      if (kOrder > 1 && tile % kSegmentTiles == 0)
        all_total[i][half] += segment_total[i][half], segment_total[i][half] = 0;
    }
    softmax.weigh(scores, lowered_in_order(T{}));
    UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int half = 0; half < 2; ++half) {
      segment_total[i][half] *= softmax.keep[i][half];
      if (kOrder > 1) all_total[i][half] *= softmax.keep[i][half];
    }
  }
  DEV void add(const MmaSums<Tile>& chunk) {
    UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int j = 0; j < segment.kColumns; ++j)
        UNROLL for (int e = 0; e < 4; ++e) segment.v[i][j][e] += chunk.v[i][j][e];
  }
  /// softmax.rescale(chunk), after the product of the tile before `tile`. At the end of a chunk this frees `chunk`.
  DEV void rescale(MmaSums<Tile>& chunk, const StreamingSoftmax<Tile>& softmax, int tile) {
    if (begins(tile)) add(chunk);
    if constexpr (kChunkTiles == 1)
      softmax.rescale(segment);
    else
      softmax.rescale(segment, chunk);
    if (kOrder < 2 || tile % kSegmentTiles != 0) return;
    join_segments(softmax, tile > kSegmentTiles);
    UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int half = 0; half < 2; ++half) segments_top[i][half] =
        softmax.top[i][half];
    UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int j = 0; j < segment.kColumns; ++j)
        UNROLL for (int e = 0; e < 4; ++e) {
      segments[((i * segment.kColumns + j) * 4 + e) * Tile::kSumThreads] = segment.v[i][j][e];
      segment.v[i][j][e] = 0;
    }
  }
  /// After `tiles` tiles: moves all sums of weighted values to `sums`, and those of weights to the softmax.
  DEV void finish(MmaSums<Tile>& sums, StreamingSoftmax<Tile>& softmax, int tiles) {
    add(sums);
    join_segments(softmax, tiles > kSegmentTiles);
    sums = segment;
    UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int half = 0; half < 2; ++half) softmax.total[i][half] =
        all_total[i][half] + (segment_total[i][half] + softmax.total[i][half]);
  }

 private:
  /// Adds earlier segments, if any, to this one, relative to the softmax's top.
  DEV void join_segments(const StreamingSoftmax<Tile>& softmax, bool some) {
    if (kOrder < 2 || !some) return;
    UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int half = 0; half < 2; ++half) {
      const float share = softmax.kept(segments_top[i][half], softmax.top[i][half]);
      UNROLL for (int j = 0; j < segment.kColumns; ++j) UNROLL for (int e = 2 * half; e < 2 * half + 2; ++e)
          segment.v[i][j][e] += share * segments[((i * segment.kColumns + j) * 4 + e) * Tile::kSumThreads];
    }
  }
};
template <class Tile>
struct OrderedSums<Tile, 0> {
  DEV static bool begins(int) { return false; }
  DEV void weigh(auto, AttentionScores<Tile>& scores, StreamingSoftmax<Tile>& softmax, int) { softmax.weigh(scores); }
  DEV void rescale(MmaSums<Tile>& sums, const StreamingSoftmax<Tile>& softmax, int) { softmax.rescale(sums); }
  DEV void finish(MmaSums<Tile>&, StreamingSoftmax<Tile>&, int) {}
};

/// Passes a warp's log-sum-exps to Lse, each by one of the four lanes that hold a row.
template <class Tile, class Lse, class Params>
DEV void store_lse(const Params& p, const AttentionSizes& s, const AttentionPlace<Tile>& at,
                   const StreamingSoftmax<Tile>& softmax) {
  UNROLL for (int i = 0; i < Tile::kWarpM / 16; ++i) UNROLL for (int half = 0; half < 2; ++half) {
    float sum = softmax.total[i][half];
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    const int query = at.query + warp() * Tile::kWarpM + 16 * i + 8 * half + lane() / 4;
    const float top = sum == 0.0f ? 0.0f : softmax.top[i][half];
    if (lane() % 4 == 0 && query < s.queries && at.column == 0)
      Lse::store(p, at.q_row + query, (top + log2_approximate(sum)) * 0.6931471805599453f);
  }
}

}  // namespace tenon::device
