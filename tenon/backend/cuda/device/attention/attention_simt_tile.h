// The parts of attention_simt.h: its tile, the copies of rows of q, k and v to shared memory, and a thread's part of
// the two products. A warp's lanes are 4 x 8: lane l has rows l / 8, l / 8 + 4, .. of its warp, and in each of them
// keys l % 8, l % 8 + 8, .. of a chunk, or one eighth of the columns.
//
// Rows in shared memory are an odd number of 16-byte chunks apart, so that eight lanes which read a chunk of eight rows
// each use all banks once.
#pragma once
#include "tenon/backend/cuda/device/attention/attention_keys.h"
#include "tenon/backend/cuda/device/elements.h"

namespace tenon::device {

/// A thread has kThreadRows_ rows. kDepth_: the depth rounded up to whole slabs of kSlab_ columns. kFew_: warps share
/// the rows, and each has its own chunk of keys; otherwise each has its own rows, and all use the same chunk.
template <int kThreadRows_, int kDepth_, int kSlab_, int kWarps_, bool kFew_>
struct AttentionSimtTile {
  static constexpr int kThreadRows = kThreadRows_, kDepth = kDepth_, kSlab = kSlab_, kWarps = kWarps_;
  static constexpr bool kFew = kFew_;
  static constexpr int kThreads = 32 * kWarps, kTeam = kFew ? 32 : kThreads;  ///< kTeam: threads that share a chunk
  static constexpr int kTeams = kThreads / kTeam;
  static constexpr int kWarpRows = 4 * kThreadRows, kRows = kFew ? kWarpRows : kWarps * kWarpRows;
  /// A chunk's keys are the same for every tile: sums are rescaled and added chunk by chunk.
  static constexpr int kKeys = 64, kLanes = 8, kThreadKeys = kKeys / kLanes;
  static constexpr int kSlabs = kDepth / kSlab, kThreadColumns = kSlab / kLanes;

  // Floats of shared memory: queries (in the end results), weights, slabs of keys and values, and if kFew the results
  // of chunks.
  static constexpr int kQueryLine = kDepth + 4, kLine = kSlab + 4, kWeightLine = kKeys + 8;
  static constexpr int kStage = kKeys * kLine, kWeights = kWarpRows * kWeightLine;
  static constexpr int kWeightsAt = kRows * kQueryLine, kStagesAt = kWeightsAt + kWarps * kWeights;
  static constexpr int kPartsAt = kStagesAt + kTeams * 2 * kStage, kTopsAt = kPartsAt + kTeams * kRows * kDepth;
  static constexpr int kTotalsAt = kTopsAt + 2 * kTeams * kRows;
  static constexpr int kSharedBytes = (kFew ? kTotalsAt + kTeams * kRows : kPartsAt) * 4;
  static_assert(kDepth % kSlab == 0 && kSlab % 8 == 0);

  DEV static void sync_team() {
    if constexpr (kFew)
      sync_warp();
    else
      sync_block();
  }
  DEV static float* shared() { return reinterpret_cast<float*>(shared_memory()); }
  /// The first of this thread's rows within the block's; the others are 4 apart.
  DEV static int row() { return (kFew ? 0 : warp() * kWarpRows) + lane() / kLanes; }
  DEV static float* weights() { return shared() + kWeightsAt + warp() * kWeights + lane() / kLanes * kWeightLine; }
  DEV static float* stage(int which) { return shared() + kStagesAt + ((kFew ? warp() : 0) * 2 + which) * kStage; }
  /// The slab's column of this thread's value `c`: first groups of four, then of two, then one.
  DEV static int column(int c) {
    constexpr int kInFours = kThreadColumns / 4 * 4, kInTwos = kThreadColumns / 2 * 2;
    const int l = lane() % kLanes;
    if (c < kInFours) return c / 4 * 4 * kLanes + l * 4 + c % 4;
    return c < kInTwos ? kInFours * kLanes + l * 2 + c % 2 : kInTwos * kLanes + l;
  }
};

DEV float minus_infinity() { return bits_to_float(0xff800000u); }

/// A block's part of the problem. The rows of a head of keys, a group's heads times their queries, are numbered on.
struct SimtPlace {
  int first, end;     ///< rows of the group
  int q_row, kv_row;  ///< row 0 of the group, and of its keys
  int queries, keys;
  bool causal;
  int seen, chunks;  ///< keys that any row sees, and their chunks
  int seen_by_fewest;

  DEV SimtPlace(const AttentionSizes& s, int tile_rows) : queries(s.queries), keys(s.keys), causal(s.causal) {
    const int group = s.heads / s.kv_heads, all = group * queries;
    first = (grid_x() - 1 - block_x()) * tile_rows;  // under a causal mask the last see the most keys: they start first
    end = first + tile_rows < all ? first + tile_rows : all;
    q_row = (block_z() * s.heads + block_y() * group) * queries;
    kv_row = (block_z() * s.kv_heads + block_y()) * (s.capacity ? s.capacity : keys);
    const bool one_head = first / queries == (end - 1) / queries;
    seen = one_head ? seen_by(end - 1) : keys;
    seen_by_fewest = seen_by(one_head ? first : 0);
    chunks = seen > 0 ? (seen + 63) / 64 : 0;
  }
  /// Keys of a chunk that any row sees.
  DEV int seen_in(int chunk) const { return seen - chunk * 64 < 64 ? seen - chunk * 64 : 64; }
  DEV int seen_by(int row) const { return causal ? row % queries + 1 + keys - queries : keys; }
};

/// Four columns of an operand that is computed where it is read; zeros from `columns` on.
template <class Operand, class Params>
DEV Frag<float, 4> simt_columns(const Params& p, int row, int column, int columns) {
  constexpr int kWidth = sizeof(Operand::eval(p, 0, 0).v) / 4;
  Frag<float, 4> out = {};
  UNROLL for (int c = 0; c < 4; c += kWidth) {
    if (column + c >= columns) continue;
    const auto part = Operand::eval(p, row, column + c);
    UNROLL for (int i = 0; i < kWidth; ++i) out.v[c + i] = part.v[i];
  }
  return out;
}

/// Starts copying kColumns columns from `column` on, zeros from `columns` on, of kRows rows from row `first` on, zeros
/// from row `rows` on. Two of the kThreads threads share a row. The operand's rows lie in memory, or it has
/// eval(p, row, column).
template <class Operand, int kRows, int kColumns, int kLine, int kThreads, class Params>
DEV void simt_copy(const Params& p, int first, int rows, int column, int columns, float* to) {
  const int t = thread_index() % kThreads;
  UNROLL for (int pass = 0; pass < kRows; pass += kThreads / 2) {
    const int r = pass + t / 2;
    if (r >= kRows) continue;
    const bool there = r < rows;
    float* const at = to + r * kLine + t % 2 * 4;
    if constexpr (requires { typename Operand::T; }) {
      const typename Operand::Row row = Operand::row(p, first + (there ? r : rows - 1));
      UNROLL for (int c = 0; c < kColumns; c += 8) {
        const int from = column + c + t % 2 * 4;
        const bool copies = there && from < columns;
        cp_async16(shared_address(at + c), Operand::at(row, copies ? from : 0), copies ? 16 : 0);
      }
    } else {
      UNROLL for (int c = 0; c < kColumns; c += 8)
          store<float, 4>(at + c, simt_columns<Operand>(p, first + r, column + c + t % 2 * 4, there ? columns : 0));
    }
  }
}

/// What weights are relative to: the highest score so far. Without any, it is a number, so that all weights are 0.
DEV float simt_zero(float top) { return top == minus_infinity() ? 0.0f : top; }

/// A thread's scores in a chunk, then its weights.
template <class Tile>
struct SimtScores {
  float v[Tile::kThreadRows][Tile::kThreadKeys] = {};

  /// += q k^T over a slab, column by column. `q`: this thread's first row; `k`: its first key.
  DEV void add(const float* q, const float* k) {
    NO_UNROLL for (int c = 0; c < Tile::kSlab; c += 8) {
      UNROLL for (int half = c; half < c + 8; half += 4) {
        Frag<float, 4> keys[Tile::kThreadKeys];
        UNROLL for (int j = 0; j < Tile::kThreadKeys; ++j) keys[j] =
            load<float, 4>(k + j * Tile::kLanes * Tile::kLine + half);
        UNROLL for (int i = 0; i < Tile::kThreadRows; ++i) {
          const Frag<float, 4> row = load<float, 4>(q + i * 4 * Tile::kQueryLine + half);
          UNROLL for (int e = 0; e < 4; ++e) UNROLL for (int j = 0; j < Tile::kThreadKeys; ++j) v[i][j] +=
              row.v[e] * keys[j].v[e];
        }
      }
    }
  }
  /// Multiplies by the scale, and masks what a row does not see in the chunk that starts at key `key`.
  DEV void finish(const SimtPlace& at, float scale, int key) {
    const bool masks = key + Tile::kKeys > at.seen_by_fewest;
    UNROLL for (int i = 0; i < Tile::kThreadRows; ++i) {
      // Fused with the zero, so that no compiler fuses it with a later subtraction, and rounds differently there.
      UNROLL for (int j = 0; j < Tile::kThreadKeys; ++j) v[i][j] = fused_multiply_add(v[i][j], scale, 0.0f);
      if (!masks) continue;
      const int here = at.seen_by(at.first + Tile::row() + 4 * i) - key - lane() % Tile::kLanes;
      UNROLL for (int j = 0; j < Tile::kThreadKeys; ++j) if (j * Tile::kLanes >= here) v[i][j] = minus_infinity();
    }
  }
  /// The highest of row `i`, or NaN if there is one.
  DEV float highest(int i) const {
    float high = v[i][0];
    UNROLL for (int j = 1; j < Tile::kThreadKeys; ++j) high = max_or_nan(high, v[i][j]);
    UNROLL for (int other = Tile::kLanes / 2; other > 0; other /= 2) high = max_or_nan(high, shuffle_xor(high, other));
    return high;
  }
  /// Makes weights of row `i`'s scores, relative to `zero`, and returns their sum.
  DEV float weigh(int i, float zero) {
    float sums[Tile::kThreadKeys];
    UNROLL for (int j = 0; j < Tile::kThreadKeys; ++j) sums[j] = v[i][j] = expf(v[i][j] - zero);
    UNROLL for (int n = Tile::kThreadKeys / 2; n > 0; n /= 2) UNROLL for (int j = 0; j < n; ++j) sums[j] += sums[j + n];
    UNROLL for (int other = Tile::kLanes / 2; other > 0; other /= 2) sums[0] += shuffle_xor(sums[0], other);
    return sums[0];
  }
  DEV void store_weights(float* to) const {
    UNROLL for (int i = 0; i < Tile::kThreadRows; ++i) UNROLL for (int j = 0; j < Tile::kThreadKeys; ++j)
        to[i * 4 * Tile::kWeightLine + j * Tile::kLanes + lane() % Tile::kLanes] = v[i][j];
  }
};

/// A thread's sums of weighted values over a chunk, of a slab's columns.
template <class Tile>
struct SimtSums {
  float v[Tile::kThreadRows][Tile::kThreadColumns] = {};

  /// += weights * values, key by key, for the chunk's first `keys` keys (the others weigh nothing). `weights`: this
  /// thread's first row; `values`: the slab.
  DEV void add(const float* weights, const float* values, int keys) {
    NO_UNROLL for (int key = 0; key < keys; key += 4) {
      Frag<float, 4> w[Tile::kThreadRows];
      UNROLL for (int i = 0; i < Tile::kThreadRows; ++i) w[i] =
          load<float, 4>(weights + i * 4 * Tile::kWeightLine + key);
      UNROLL for (int e = 0; e < 4; ++e) {
        float x[Tile::kThreadColumns];
        load_columns(x, values + (key + e) * Tile::kLine);
        UNROLL for (int i = 0; i < Tile::kThreadRows; ++i) UNROLL for (int c = 0; c < Tile::kThreadColumns; ++c)
            v[i][c] += w[i].v[e] * x[c];
      }
    }
  }

 private:
  DEV static void load_columns(float (&x)[Tile::kThreadColumns], const float* line) {
    constexpr int kInFours = Tile::kThreadColumns / 4 * 4, kInTwos = Tile::kThreadColumns / 2 * 2;
    UNROLL for (int c = 0; c < kInFours; c += 4) {
      const Frag<float, 4> four = load<float, 4>(line + Tile::column(c));
      UNROLL for (int i = 0; i < 4; ++i) x[c + i] = four.v[i];
    }
    if constexpr (kInTwos > kInFours) {
      const Frag<float, 2> two = load<float, 2>(line + Tile::column(kInFours));
      x[kInFours] = two.v[0], x[kInFours + 1] = two.v[1];
    }
    if constexpr (Tile::kThreadColumns > kInTwos) x[kInTwos] = line[Tile::column(kInTwos)];
  }
};

}  // namespace tenon::device
