// The matrix product with wgmma: GemmSizes, persistent blocks.
//
// grid.x = min(kResident * multiprocessors, tiles of m * tiles of n * batch * splits); WgmmaTile::kThreads,
// kSharedBytes. Operands are dense tensors [batch * rows][columns] that TMA reads (device.h's TensorBox, swizzle 128):
// A in boxes of 128 bytes x kM rows, B of 128 bytes x kN / max(kLanes, kCluster) rows if stored permuted, else x 32. An
// operand is
//   struct A { using T = BF16; DEV static TmaSource source(const Params& p, int column) { return {p.a, column}; }
//     static constexpr bool kConstant = false;   // true: valid before the preceding kernels have ended
//     static constexpr bool kPermuted = false; };  // of B: mma_results.h
// where the columns of one K tile (128 bytes) must come from one map. An operand of 16-bit elements with kColumns is
// stored transposed, [K][rows]: boxes are 64 of its columns, the product's rows, x 64 of K (32 if the rows in memory
// are permuted), and source(p, row) gives the position of a row of the product; 64 of them must come from one map. A
// stack of such matrices has place(p, matrix) and maps of rank 3. B then has one lane and is not shared in a cluster,
// and kN is a multiple of 64.
//
// A narrow product may be added to the results after they are scaled and before the epilogue:
//   struct Branch { using A = .., B = ..;      // as above, of 16-bit elements; B is permuted
//     DEV static int columns(const Params& p);  // of its K
//     static constexpr bool kScales = true;
//     using Scaled = ..; };                     // its compute(p, row, col, acc).counted replaces acc
//
// Operand A may be behind a norm that the weights hold except for a factor per row (wgmma_norms.h): then K is whole
// K tiles of 16-bit elements, not split, and A is stored in rows.
#pragma once
#include "tenon/backend/cuda/device/products/wgmma_tile.h"

namespace tenon::device {

struct NoBranch {};

/// Where a matrix of a stack of transposed ones lies: its first column, and the third coordinate.
struct MatrixPlace {
  int column, group;
};

/// Copies `rows` rows of the product, starting at row `first` of matrix `matrix`, of a transposed operand, 64 of K from
/// `k` on. kPermuted: rows in memory are permuted, and boxes of 32 restore their order.
template <class Operand, bool kPermuted, class Params>
DEV void load_columns(const Params& p, uint32_t dst, int rows, int first, int k, int matrix, uint32_t full) {
  for (int at = 0; at < rows; at += 64) {
    const TmaSource from = Operand::source(p, first + at);
    const uint32_t block = dst + at / 64 * kColumnsBlock;
    if constexpr (kPermuted) {
      tma_load(block, from.map, full, from.column, 0, k / 8, 0);
      tma_load(block + kColumnsBlock / 2, from.map, full, from.column, 0, k / 8 + 4, 0);
    } else if constexpr (requires { Operand::place(p, matrix); }) {
      const MatrixPlace place = Operand::place(p, matrix);
      tma_load(block, from.map, full, place.column + from.column, k, place.group);
    } else {
      tma_load(block, from.map, full, from.column, k);
    }
  }
}

/// The order in which stages of K are multiplied if sums are per range (GemmSizes): a range, then the range that is
/// added to it, and so on. One thread evaluates it for every stage, so it avoids divisions.
struct RangeOrder {
  int stages;              ///< in all
  int range, half, whole;  ///< in stages: a range; the first half of ranges; whole ranges of the second half
  int rest;                ///< the second half's last range
  float two_ranges;        ///< the fraction of two ranges that a stage is

  DEV RangeOrder(int range, int stages) : stages(stages), range(range), half(kSumRanges / 2 * range) {
    const int second = stages > half ? stages - half : 0;
    whole = range > 0 ? second / range * range : 0;
    rest = second - whole;
    two_ranges = 1 / static_cast<float>(2 * range);
  }
  /// The number of stages of the pairs of ranges before this one.
  DEV int before(int pair) const {
    const int at = pair * range, second = whole + rest;
    return (at < stages ? at : stages) + (at < second ? at : second);
  }
  /// The stage at position `n`.
  DEV int stage(int n) const {
    const int behind = n - 2 * whole;
    if (behind < 0) {
      const int pair = static_cast<int>((static_cast<float>(n) + 0.5f) * two_ranges), inside = n - pair * 2 * range;
      return pair * range + (inside < range ? inside : half - range + inside);
    }
    if (behind < range) return whole + behind;
    return behind < range + rest ? half + whole + behind - range : whole + behind - rest;
  }
};

template <class Tile, class A, class B, class Epilogue, class Branch_, class Norm_, class Params>
struct GemmProblem {
  using Branch = Branch_;
  using Norm = Norm_;
  static constexpr int kColumns = Tile::kRowBytes / sizeof(typename A::T);
  static constexpr bool kConstantB = B::kConstant, kColumnsA = in_columns<A>(), kColumnsB = in_columns<B>();
  static constexpr bool kBranches = requires { typename Branch::A; };
  static_assert(!kColumnsB || (Tile::kN % 64 == 0 && Tile::kCluster == 1 && Epilogue::kLanes == 1));
  using Lanes = LaneColumns<Tile, Epilogue::kLanes>;
  const Params& p;
  RangeOrder order;
  int tiles_m, tiles_n;

  DEV explicit GemmProblem(const Params& params)
      : p(params),
        order(p.sizes.range / kColumns, (p.sizes.k + kColumns - 1) / kColumns),
        tiles_m(wgmma_tiles_m<Tile>((p.sizes.m + Tile::kM - 1) / Tile::kM)),
        tiles_n((columns() + Lanes::kTile - 1) / Lanes::kTile) {}
  DEV int items() const { return wgmma_items<Tile>(tiles_m, tiles_n, p.sizes.batch, p.sizes.split.splits); }
  DEV WgmmaItem item(int index) const {
    if constexpr (Norm::kApplies) return item_of_rows(index);
    return wgmma_item<Tile>(index, tiles_m, tiles_n, p.sizes.split.splits);
  }
  /// Behind a norm, a block's tiles follow each other along the rows, which it then reduces once.
  DEV WgmmaItem item_of_rows(int index) const {
    static_assert(kClusterBlocks<Tile> == 1);
    const int blocks = grid_x(), turn = index / blocks, block = index - turn * blocks;
    const int each = items() / blocks, more = items() - each * blocks;
    const int tile = block * each + (block < more ? block : more) + turn, m = tile / tiles_n;
    return {tile, 0, 1, m, tile - m * tiles_n};
  }
  DEV TileRange k_tiles(const WgmmaItem& item) const {
    if constexpr (Tile::kInRanges && Tile::kAlongK > 1) {  // each block has a pair of ranges
      const int before = order.before(item.part);
      return {before, order.before(item.part + 1) - before};
    }
    return {order.stages, item.parts, item.part};
  }
  DEV int stages() const { return order.stages; }
  DEV int range() const { return order.range; }
  /// The first column of K tile `n`. With ranges, two ranges whose sums are added follow each other.
  DEV int column_of(int n) const {
    if constexpr (Tile::kInRanges) return order.stage(n) * kColumns;
    return n * kColumns;
  }
  DEV static int stage_bytes() { return Tile::kStageBytes; }
  DEV int batch(const WgmmaItem& item) const { return item.tile / (tiles_m * tiles_n); }
  DEV int columns() const { return p.sizes.n / Epilogue::kLanes; }
  DEV int column(const WgmmaItem& item) const { return item.n * Lanes::kTile; }
  DEV int row_of(const WgmmaItem& item, int i) const {
    const int row = item.m * Tile::kM + i;
    return row < p.sizes.m ? batch(item) * p.sizes.m + row : -1;
  }
  DEV RowSamples samples(const WgmmaItem& item) const { return {p.sizes.count.inner, item.m, Tile::kM, p.sizes.m}; }
  DEV void load_a(const WgmmaItem& item, int k_tile, uint32_t a, uint32_t full) const {
    if constexpr (kColumnsA)
      return load_columns<A, false>(p, a, Tile::kM, item.m * Tile::kM, column_of(k_tile), batch(item), full);
    const TmaSource from = A::source(p, column_of(k_tile));
    tma_load(a, from.map, full, from.column, batch(item) * p.sizes.m + item.m * Tile::kM);
  }
  DEV void load_b(const WgmmaItem& item, int k_tile, uint32_t b, uint32_t full) const {
    if constexpr (kColumnsB)
      return load_columns<B, B::kPermuted>(p, b, Tile::kN, column(item), column_of(k_tile), batch(item), full);
    const TmaSource from = B::source(p, column_of(k_tile));
    load_rows_of_b<Tile, Epilogue::kLanes, B::kPermuted>(
        b, batch(item) * p.sizes.n + column(item), columns(),
        [&](uint32_t dst, int row) { load_box_of_b<Tile, B::kPermuted>(dst, from.map, full, row, from.column); });
  }

  /// Columns of the branch's K, copied in K tiles of kBranchColumns; load_branch copies both operands of one.
  DEV int branch_columns() const { return Branch::columns(p); }
  DEV void load_branch(const WgmmaItem& item, int k_tile, uint32_t a, uint32_t b, uint32_t full) const {
    const TmaSource from = Branch::A::source(p, k_tile * kBranchColumns);
    tma_load(a, from.map, full, from.column, item.m * Tile::kM);
    const TmaSource of_b = Branch::B::source(p, k_tile * kBranchColumns);
    load_rows_of_b<Tile, Epilogue::kLanes, true>(b, column(item), columns(), [&](uint32_t dst, int row) {
      load_box_of_b<Tile, true>(dst, of_b.map, full, row, of_b.column);
    });
  }
};

template <class Tile, class A, class B, class Epilogue, class Branch = NoBranch, class Norm = NoNorm, class Params>
DEV void gemm_wgmma(const Params& p) {
  wgmma_run<Tile, typename A::T, Epilogue>(p, GemmProblem<Tile, A, B, Epilogue, Branch, Norm, Params>(p));
}

}  // namespace tenon::device
