// The parts of attention_mma.h: its tile, the copies of rows of q, k and v to shared memory and from there to
// fragments, and the two products.
#pragma once
#include "tenon/backend/cuda/device/attention/attention_softmax.h"
#include "tenon/backend/cuda/device/products/mma_tile.h"

namespace tenon::device {

/// kQueries_ x kKeys_ scores at a time, kWarps_ warps with kQueries_ / kWarps_ queries each. kDepth_: the depth rounded
/// up to 16 (deep heads: 64). kValueColumns_: result columns per block, all of them unless the head is deep. kOrder_:
/// as in attention_wgmma.h, for heads that are not deep.
template <int kDepth_, int kValueColumns_, int kQueries_, int kKeys_, int kWarps_, int kStages_, int kOrder_ = 0>
struct AttentionTile {
  static constexpr int kDepth = kDepth_, kValueColumns = kValueColumns_, kQueries = kQueries_, kKeys = kKeys_;
  static constexpr int kOrder = kOrder_, kSumThreads = 32 * kWarps_;
  static constexpr int kWarps = kWarps_, kStages = kStages_, kThreads = 32 * kWarps;
  // What MmaSums and mma_store need: a warp has all columns of its rows.
  static constexpr int kWarpM = kQueries / kWarps, kWarpN = kValueColumns;
  static constexpr int kSlabColumns = kValueColumns % 64 == 0 ? 64 : kValueColumns;
  static constexpr int kSlabBytes = 16 * (kSlabColumns + 8) * 4;

  static constexpr int kMaxShallow = 160, kBlock = 64;  ///< kBlock: columns in a block of a deep head
  static constexpr bool kDeep = kDepth > kMaxShallow;
  /// Whether the queries' fragments stay in registers, next to scores and sums.
  static constexpr bool kStay =
      !kDeep && kWarpM / 16 * (kDepth / 4 + (kOrder ? 2 : 1) * kValueColumns / 2 + kKeys / 2) <= 170;
  static constexpr int kQueryBytes = kQueries * kDepth * 2, kKeyBytes = kKeys * kDepth * 2;
  static constexpr int kStageBytes = kDeep ? kKeys * kBlock * 2 : kKeyBytes + kKeys * kValueColumns * 2;
  /// Queries that stay in registers are loaded through the stage that is filled last.
  static constexpr int kQueryAt = kStay ? (kStages - 1) * kStageBytes : kStages * kStageBytes;
  static constexpr int kPipelineBytes = kStages * kStageBytes, kSlabsBytes = kWarps * kSlabBytes;
  static constexpr int kWithQueries = kQueryAt + kQueryBytes > kPipelineBytes ? kQueryAt + kQueryBytes : kPipelineBytes;
  static constexpr int kSegmentsAt = kWithQueries > kSlabsBytes ? kWithQueries : kSlabsBytes;
  static constexpr int kSharedBytes = kSegmentsAt + (kOrder > 1 ? kQueries * kValueColumns * 4 : 0);
  static_assert(kWarpM == 16 || kWarpM == 32, "a lane holds one row of its warp's queries while they are copied");
  static_assert(kDepth % (kDeep ? kBlock : 16) == 0 && kValueColumns % (kDeep ? kBlock : 8) == 0);
  static_assert(kOrder == 0 || (!kDeep && 128 % kKeys == 0));
  static_assert(kKeys % 16 == 0 && kKeys % kWarps == 0 && kKeys / kWarps <= 32 && kStages >= 2);
};

/// Rows of kChunks 16-byte chunks in shared memory. Equal-numbered chunks of eight rows are in different banks: with an
/// odd kChunks they are anyway, otherwise chunks are swizzled within groups of kSpan.
template <int kChunks>
struct SwizzledRows {
  static constexpr int kBytes = kChunks * 16;
  static constexpr int kSpan = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : kChunks % 2 == 0 ? 2 : 1;

  DEV static uint32_t at(int row, int chunk) { return row * kBytes + (chunk ^ (row / (8 / kSpan) & (kSpan - 1))) * 16; }
  /// The address of the chunk 2 * pairs after chunk 0 or 1 of a row.
  DEV static uint32_t ahead(uint32_t address, int pairs) {
    return (address ^ 2 * pairs % kSpan * 16) + 2 * pairs / kSpan * kSpan * 16;
  }
};

/// The row that lane `from` of the warp holds.
template <class Row>
DEV Row shuffle_row(const Row& row, int from) {
  static_assert(sizeof(Row) % 8 == 0, "a row has a pointer");
  union Words {
    Row row;
    uint64_t words[sizeof(Row) / 8];
  };
  Words words{row};
  UNROLL for (int i = 0; i < static_cast<int>(sizeof(Row) / 8); ++i) words.words[i] = shuffle(words.words[i], from);
  return words.row;
}

/// Copies kRows rows of 8 * kChunks columns to shared memory. Each warp copies its own rows; each lane computes the
/// address of one of them.
template <class Tile, class Operand, int kRows, int kChunks>
struct RowTiles {
  using Rows = SwizzledRows<kChunks>;
  static constexpr int kWarpRows = kRows / Tile::kWarps, kItems = kWarpRows * kChunks, kPasses = (kItems + 31) / 32;
  typename Operand::Row row;
  int left;  ///< rows from the warp's first on

  /// Moves to row `first` of a head's `rows`; the head's row 0 is the operand's row `head`.
  template <class Params>
  DEV void move(const Params& p, int head, int first, int rows) {
    const int warp_first = first + warp() * kWarpRows, mine = warp_first + lane() % kWarpRows;
    left = rows - warp_first;
    row = Operand::row(p, head + (mine < rows ? mine : rows - 1));
  }

  /// Copies from column `column` on; zeros from `columns` on and for missing rows.
  DEV void copy(int column, int columns, uint32_t shared) const {
    UNROLL for (int pass = 0; pass < kPasses; ++pass) {
      const int item = pass * 32 + lane(), r = item / kChunks, chunk = item % kChunks, c = column + chunk * 8;
      const typename Operand::Row from = shuffle_row(row, r);
      if (kItems % 32 != 0 && item >= kItems) continue;
      cp_async16(shared + Rows::at(warp() * kWarpRows + r, chunk), Operand::at(from, c < columns ? c : 0),
                 r < left && c < columns ? 16 : 0);
    }
  }
};

/// A warp's fragments of the queries, kChunks chunks deep: all of them, or two K blocks of 16 columns.
template <class Tile, int kChunks>
struct QueryFragments {
  using Rows = SwizzledRows<kChunks>;
  static constexpr int kHeld = Tile::kStay ? kChunks / 2 : 2;
  uint32_t from, f[kHeld][Tile::kWarpM / 16][4];

  DEV explicit QueryFragments(uint32_t shared)
      : from(shared + Rows::at(warp() * Tile::kWarpM + lane() % 16, lane() / 16)) {}
  DEV void load(int k_block) {
    UNROLL for (int i = 0; i < Tile::kWarpM / 16; ++i)
        ldmatrix_x4(f[k_block % kHeld][i], Rows::ahead(from, k_block) + i * 16 * Rows::kBytes);
  }
  DEV void load_all() { UNROLL for (int k_block = 0; k_block < kHeld; ++k_block) load(k_block); }
};

/// Scores computed by ldmatrix and mma.
template <class Tile>
struct MmaScores : AttentionScores<Tile> {
  using AttentionScores<Tile>::kRows, AttentionScores<Tile>::kColumns, AttentionScores<Tile>::v;

  DEV void clear() {
    UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int j = 0; j < kColumns; ++j) UNROLL for (int e = 0; e < 4; ++e)
        v[i][j][e] = 0.0f;
  }

  /// += q k^T over 8 * kChunks columns; `k`: kKeys rows of them in shared memory.
  template <class T, int kChunks>
  DEV void add(QueryFragments<Tile, kChunks>& q, uint32_t k) {
    using Rows = SwizzledRows<kChunks>;
    constexpr int kPairs = Tile::kKeys / 16, kItems = kChunks / 2 * kPairs;
    const uint32_t from = k + Rows::at(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2);
    uint32_t keys[2][4];  // one ahead
    ldmatrix_x4(keys[0], from);
    if constexpr (!Tile::kStay) q.load(0);
    UNROLL for (int item = 0; item < kItems; ++item) {
      const int k_block = item / kPairs, pair = item % kPairs, next = item + 1;
      if (next < kItems)
        ldmatrix_x4(keys[next % 2], Rows::ahead(from, next / kPairs) + next % kPairs * 16 * Rows::kBytes);
      if (!Tile::kStay && pair == 0 && k_block + 1 < kChunks / 2) q.load(k_block + 1);
      const uint32_t(&two)[4] = keys[item % 2];
      const uint32_t low[2] = {two[0], two[1]}, high[2] = {two[2], two[3]};
      UNROLL for (int i = 0; i < kRows; ++i) {
        mma(T{}, v[i][2 * pair], q.f[k_block % q.kHeld][i], low);
        mma(T{}, v[i][2 * pair + 1], q.f[k_block % q.kHeld][i], high);
      }
    }
  }
};

/// Weights as mma's operand in the product with values.
template <class Tile>
struct MmaWeights : AttentionWeights<Tile> {
  using AttentionWeights<Tile>::f;

  /// sums[.., first fragment on] += weights * v; `v`: kKeys rows of 8 * kChunks columns in shared memory.
  template <class T, int kChunks>
  DEV void multiply(MmaSums<Tile>& sums, int first, uint32_t v) const {
    using Rows = SwizzledRows<kChunks>;
    constexpr int kPairs = (kChunks + 1) / 2, kItems = Tile::kKeys / 16 * kPairs;
    const uint32_t from = v + Rows::at(lane() % 16, lane() / 16);
    uint32_t values[2][4];  // one ahead
    load<kChunks>(values[0], from, 0);
    UNROLL for (int item = 0; item < kItems; ++item) {
      const int k_block = item / kPairs, pair = item % kPairs;
      if (item + 1 < kItems) load<kChunks>(values[(item + 1) % 2], from, item + 1);
      const uint32_t(&two)[4] = values[item % 2];
      const uint32_t low[2] = {two[0], two[1]}, high[2] = {two[2], two[3]};
      UNROLL for (int i = 0; i < Tile::kWarpM / 16; ++i) {
        mma(T{}, sums.v[i][first + 2 * pair], f[k_block][i], low);
        if (2 * pair + 1 < kChunks) mma(T{}, sums.v[i][first + 2 * pair + 1], f[k_block][i], high);
      }
    }
  }

 private:
  template <int kChunks>
  DEV static void load(uint32_t (&two)[4], uint32_t from, int item) {
    using Rows = SwizzledRows<kChunks>;
    constexpr int kPairs = (kChunks + 1) / 2;
    const int pair = item % kPairs;
    const uint32_t address = Rows::ahead(from, pair) + item / kPairs * 16 * Rows::kBytes;
    if (2 * pair + 1 < kChunks) {
      ldmatrix_x4_trans(two, address);
    } else {
      uint32_t one[2];
      ldmatrix_x2_trans(one, address);
      two[0] = one[0], two[1] = one[1];
    }
  }
};

}  // namespace tenon::device
