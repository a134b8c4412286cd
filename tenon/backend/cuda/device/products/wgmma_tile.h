// Tiles of a matrix product on sm_90's tensor cores: persistent, warp-specialized blocks that process a list of items:
//
//   warpgroup 0, one thread: boxes of both operands --TMA, kStages deep--> shared [rows][128 bytes], swizzled
//   the other warpgroups, 64 rows of the tile each: shared --wgmma--> registers --> the epilogue
//
// Two mbarriers per stage: `full` counts the bytes that arrived, `empty` the warps that have finished reading. Copies
// for the next item overlap this item's epilogue.
#pragma once
#include "tenon/backend/cuda/device/products/wgmma_meeting.h"

namespace tenon::device {

/// kM_ (64, 128 or 256) x kN_ (a multiple of 32 up to 256) results, 128 bytes of K per stage. kResident_: blocks per
/// multiprocessor. kCluster_: adjacent blocks along m (1 or 2) that share operand B: each multicasts a part to all.
/// kInRanges_: sums are added in the order of GemmSizes::range. kAlongK_: adjacent blocks (1 to 8), a cluster, that
/// share a tile: each has a part of K, and finishes some columns of the sums (wgmma_meeting.h). Then a block has one
/// item.
template <int kM_, int kN_, int kStages_, int kResident_ = 1, int kCluster_ = 1, bool kInRanges_ = false,
          int kAlongK_ = 1>
struct WgmmaTile {
  static constexpr bool kInRanges = kInRanges_;
  static constexpr int kAlongK = kAlongK_;
  static constexpr int kM = kM_, kN = kN_, kStages = kStages_, kResident = kResident_, kRowBytes = 128;
  static constexpr int kCluster = kCluster_;
  /// Warpgroups that multiply: 64 rows each, or twice 64.
  static constexpr int kGroups = kM > 128 ? 2 : kM / 64, kParts = kM / 64 / kGroups;
  static constexpr int kWarpM = 16 * kParts, kWarpN = kN, kFragmentStride = 64;
  static constexpr int kSumThreads = 128 * kGroups, kSumWarps = kSumThreads / 32, kThreads = kSumThreads + 128;
  static constexpr bool kPermutesB = true;
  /// Runs of results whose loads are in flight together in the epilogue: as many as registers allow.
  static constexpr int kMaxCalls = kResident > 1 && kN > 128 ? 4 : 8;
  /// With kAddsStages: columns whose per-stage sums are held separately at a time, since both sets must fit in
  /// registers.
  static constexpr int kApartN = kParts * kN > 192 && kN > 128 ? kN / 2 : kN;
  static constexpr int kSlabBytes = (2 * kN + 4) * 4;  ///< a warp's moments, and their row count
  static constexpr int kStageBytes = (kM + kN) * kRowBytes;
  static constexpr int kSlabsAt = kStages * kStageBytes, kBarriersAt = kSlabsAt + kSumWarps * kSlabBytes;
  static constexpr int kSharedBytes = kBarriersAt + 16 * kStages + 16;
  static_assert(kM % 64 == 0 && kN % 32 == 0 && kN <= 256 && kParts * kN <= 256);
  static_assert(kAlongK == 1 || (kCluster == 1 && (!kInRanges || kAlongK == kSumRanges / 2)));
};

DEV void wgmma(BF16, auto& d, uint64_t a, uint64_t b, bool adds = true) { wgmma_bf16(d, a, b, adds); }
DEV void wgmma(F16, auto& d, uint64_t a, uint64_t b, bool adds = true) { wgmma_f16(d, a, b, adds); }

/// The source of an operand's columns: its `source(p, column)`. Joined operands have several maps.
struct TmaSource {
  const TensorMap& map;
  int column;
};

/// A work item: a tile and one of the `parts` into which K is split.
struct WgmmaItem {
  int tile, part, parts, m, n;  ///< m, n: the tile's position, in tiles
};
/// Tiles along m, rounded up to a multiple of the cluster size.
template <class Tile>
DEV int wgmma_tiles_m(int tiles) {
  return (tiles + Tile::kCluster - 1) / Tile::kCluster * Tile::kCluster;
}
template <class Tile>
inline constexpr int kClusterBlocks = (Tile::kCluster)*Tile::kAlongK;
/// This block's number among those that share operand B.
template <class Tile>
DEV int rank_along_m() {
  if constexpr (Tile::kCluster > 1)
    return cluster_rank();
  else
    return 0;
}
/// A cluster's first item, and the stride to its next.
template <class Tile>
DEV int first_item() {
  return block_x() / kClusterBlocks<Tile>;
}
template <class Tile>
DEV int item_stride() {
  return grid_x() / kClusterBlocks<Tile>;
}
/// The number of items of all clusters; tiles_m as from wgmma_tiles_m.
template <class Tile>
DEV int wgmma_items(int tiles_m, int tiles_n, int batch, int splits) {
  return tiles_m * tiles_n * batch * splits / kClusterBlocks<Tile>;
}
/// What this block does of item `index`. The parts of a tile are adjacent. A cluster takes as many tiles along m, of
/// which the last may be outside, or all parts of a tile.
template <class Tile>
DEV WgmmaItem wgmma_item(int index, int tiles_m, int tiles_n, int splits) {
  const int rows = tiles_m / Tile::kCluster, number = index / (splits / Tile::kAlongK);
  const int part = Tile::kAlongK > 1 ? cluster_rank() : index % splits, along_m = rank_along_m<Tile>();
  const int batch = number / (rows * tiles_n);
  const TileAt at(number - batch * rows * tiles_n, rows, tiles_n);
  return {number * Tile::kCluster + along_m, part, splits, at.m * Tile::kCluster + along_m, at.n};
}

/// True for an operand stored transposed: [K][rows of the product] in memory.
template <class Operand>
DEV constexpr bool in_columns() {
  return requires { Operand::kColumns; };
}
/// Bytes of a block of a transposed operand: 64 of K, 64 contiguous rows of the product.
inline constexpr int kColumnsBlock = 64 * 128;
/// Copies a tile's rows of B, for all lanes. In a cluster each block multicasts its part to all blocks: a lane, or a
/// share of the rows. `row` is the first row of lane 0, `lane_rows` the distance between lanes. load(dst, row) copies
/// as many rows as are contiguous if B is stored permuted, else 32, which the copy permutes.
template <class Tile, int kLanes, bool kPermuted, class Load>
DEV void load_rows_of_b(uint32_t b, int row, int lane_rows, Load load) {
  constexpr int kLaneRows = Tile::kN / kLanes, kShare = Tile::kN / Tile::kCluster;
  constexpr int kRows = !kPermuted ? 32 : kLaneRows < kShare ? kLaneRows : kShare;
  static_assert(kLaneRows % kRows == 0 && kShare % kRows == 0 && kRows % 32 == 0);
  const int rank = rank_along_m<Tile>();
  UNROLL for (int i = 0; i < kShare; i += kRows) {
    const int at = rank * kShare + i, lane = at / kLaneRows;
    load(b + at * Tile::kRowBytes, row + lane * lane_rows + at - lane * kLaneRows);
  }
}
/// One copy of such rows; `at`: the coordinates within a row. The boxes that permute rows (core_call.h's permuting_box
/// and permuting_taps_box) count rows in eights, between two dimensions that they span fully.
template <class Tile, bool kPermuted, class... At>
DEV void load_box_of_b(uint32_t dst, const TensorMap& map, uint32_t full, int row, At... at) {
  const auto load = [&](auto... coordinates) {
    if constexpr (Tile::kCluster == 1)
      tma_load(dst, map, full, coordinates...);
    else
      tma_load_shared(dst, map, full, (1u << Tile::kCluster) - 1, coordinates...);
  };
  if constexpr (kPermuted)
    load(at..., row);
  else
    load(at..., 0, row / 8, 0);
}

/// The mbarriers and buffers of the stages, in ring order.
template <class Tile>
struct StageRing {
  uint32_t shared = shared_address(shared_memory());
  int stage = 0, phase = 0;
  DEV uint32_t a() const { return shared + stage * Tile::kStageBytes; }
  DEV uint32_t b() const { return a() + Tile::kM * Tile::kRowBytes; }
  DEV uint32_t full() const { return shared + Tile::kBarriersAt + 16 * stage; }
  DEV uint32_t empty() const { return full() + 8; }
  DEV void advance() {
    if (++stage == Tile::kStages) stage = 0, phase ^= 1;
  }
};

template <class Tile>
struct SumCrew {
  DEV static int index() { return thread_index() - 128; }
  DEV static void sync() { sync_named(1, Tile::kSumThreads); }
};

/// Columns of K per stage of a narrow product with 16-bit elements.
inline constexpr int kBranchColumns = 64;

/// The producer: copies the operands of all this block's items. What does not depend on preceding kernels, the constant
/// operand of the first stages, is copied while those still run.
template <class Tile, class Problem>
DEV void wgmma_produce(const Problem& problem) {
  StageRing<Tile> ring;
  int ahead = 0;  // stages whose constant operand is in flight
  if (Problem::kConstantB && first_item<Tile>() < problem.items()) {
    const auto item = problem.item(first_item<Tile>());
    const TileRange k_tiles = problem.k_tiles(item);
    NO_UNROLL for (; ahead < Tile::kStages && ahead < k_tiles.count; ++ahead) {
      mbarrier_arrive_expecting(ring.full(), problem.stage_bytes());
      problem.load_b(item, k_tiles.first + ahead, ring.b(), ring.full());
      ring.advance();
    }
    ring = {};
  }
  griddep_wait();
  for (int index = first_item<Tile>(); index < problem.items(); index += item_stride<Tile>()) {
    const auto item = problem.item(index);
    const TileRange k_tiles = problem.k_tiles(item);
    NO_UNROLL for (int k_tile = 0; k_tile < k_tiles.count; ++k_tile) {
      if (ahead > 0) {
        --ahead;
      } else {
        mbarrier_wait(ring.empty(), ring.phase ^ 1);
        mbarrier_arrive_expecting(ring.full(), problem.stage_bytes());
        problem.load_b(item, k_tiles.first + k_tile, ring.b(), ring.full());
      }
      problem.load_a(item, k_tiles.first + k_tile, ring.a(), ring.full());
      ring.advance();
    }
    if constexpr (Problem::kBranches)
      NO_UNROLL for (int k_tile = 0; k_tile * kBranchColumns < problem.branch_columns(); ++k_tile) {
        mbarrier_wait(ring.empty(), ring.phase ^ 1);
        mbarrier_arrive_expecting(ring.full(), Tile::kStageBytes);
        problem.load_branch(item, k_tile, ring.a(), ring.b(), ring.full());
        ring.advance();
      }
  }
}

/// Tells all blocks that fill the stage that this warp is done with it.
template <class Tile>
DEV void leave_stage(uint32_t empty) {
  if constexpr (Tile::kCluster == 1) {
    if (lane() == 0) mbarrier_arrive(empty);
  } else {
    if (lane() < Tile::kCluster) mbarrier_arrive_at(empty, lane());
  }
}

/// Offset of the first row of operand A of this warp's warpgroup, from the start of the stage.
template <class Tile>
DEV uint32_t rows_of_group() {
  return (warp_uniform() - 4) / 4 * (64 * Tile::kParts) * Tile::kRowBytes;
}

/// The descriptor of an operand; for a transposed one T selects a function of a header that not all kernels include.
template <class T, bool kColumns>
DEV uint64_t operand_at(uint32_t address) {
  if constexpr (kColumns)
    return columns_of(T{}, address, kColumnsBlock);
  else
    return wgmma_rows(address);
}

/// True for types that wgmma accumulates with less precision than f32: for e4m3 it keeps some 14 bits, aligned to the
/// largest addend, so that a long sum loses small terms.
template <class T>
inline constexpr bool kAddsStages = false;
template <>
inline constexpr bool kAddsStages<E4M3> = true;

/// Accumulates `k_tiles` K tiles of e4m3: within one (128 products) by wgmma, across them in f32. While one
/// warpgroup adds, the other's products run.
template <class Tile, class T>
requires kAddsStages<T> DEV void wgmma_loop(MmaSums<Tile>& sums, StageRing<Tile>& ring, int k_tiles) {
  constexpr int kColumns = Tile::kApartN, kFragments = kColumns / 8, kProducts = Tile::kParts * (Tile::kN / kColumns);
  const uint32_t rows = rows_of_group<Tile>();
  float apart[kFragments][4] = {};
  sums = {};
  NO_UNROLL for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    mbarrier_wait(ring.full(), ring.phase);
    UNROLL for (int product = 0; product < kProducts; ++product) {
      const int part = product % Tile::kParts, column = product / Tile::kParts * kColumns;
      const uint64_t a = wgmma_rows(ring.a() + rows + part * 64 * Tile::kRowBytes);
      const uint64_t b = wgmma_rows(ring.b() + column * Tile::kRowBytes);
      wgmma_fence();
      UNROLL for (int k = 0; k < Tile::kRowBytes / 32; ++k) wgmma_e4m3(apart, a + 2 * k, b + 2 * k, k > 0);
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_settle(apart);
      if (product == kProducts - 1) leave_stage<Tile>(ring.empty());
      UNROLL for (int j = 0; j < kFragments; ++j) UNROLL for (int e = 0; e < 4; ++e) sums.v[part][column / 8 + j][e] +=
          apart[j][e];
    }
    ring.advance();
  }
}

/// Accumulates `k_tiles` K tiles. kA, kB: operands stored transposed. beside(): reads the ring's stage while its
/// products run.
template <class Tile, class T, bool kA, bool kB, class Beside>
requires(!kAddsStages<T>) DEV
    void wgmma_loop(MmaSums<Tile>& sums, StageRing<Tile>& ring, int k_tiles, const Beside& beside) {
  constexpr int kParts = Tile::kParts;
  const uint32_t rows = rows_of_group<Tile>();
  uint32_t last_empty = 0;
  sums = {};
  // With one item a block's first K tile is peeled, and zeros may not come between its products.
  if constexpr (Tile::kAlongK > 1) UNROLL for (int part = 0; part < kParts; ++part) wgmma_settle(sums.v[part]);
  NO_UNROLL for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    mbarrier_wait(ring.full(), ring.phase);
    const uint64_t b = operand_at<T, kB>(ring.b());
    wgmma_fence();
    UNROLL for (int part = 0; part < kParts; ++part) {
      const uint64_t a = operand_at<T, kA>(ring.a() + rows + part * 64 * Tile::kRowBytes);
      UNROLL for (int k = 0; k < Tile::kRowBytes / 32; ++k) {
        if constexpr (kA || kB)
          wgmma_in_columns<kA, kB>(T{}, sums.v[part], a + (kA ? 128 : 2) * k, b + (kB ? 128 : 2) * k);
        else
          wgmma(T{}, sums.v[part], a + 2 * k, b + 2 * k);
      }
    }
    wgmma_commit();
    beside();
    wgmma_wait<1>();  // the previous K tile is done with its stage
    if (k_tile > 0) leave_stage<Tile>(last_empty);
    last_empty = ring.empty();
    ring.advance();
  }
  wgmma_wait<0>();
  UNROLL for (int part = 0; part < kParts; ++part) wgmma_settle(sums.v[part]);
  if (k_tiles > 0) leave_stage<Tile>(last_empty);
}

/// Ping-pong: two warpgroups start the products of a stage in turn, so that one adds while the other's products run.
template <class Tile>
struct StageTurns {
  static constexpr bool kTaken = Tile::kGroups == 2;
  int group = (warp_uniform() - 4) / 4;
  DEV explicit StageTurns(bool wanted) {
    if (wanted && kTaken && group == 1) arrive_named(2, 256);
  }
  DEV void wait() const {
    if constexpr (kTaken) sync_named(2 + group, 256);
  }
  DEV void pass() const {
    if constexpr (kTaken) arrive_named(3 - group, 256);
  }
  /// Consumes the pending turn.
  DEV void finish() const {
    if (kTaken && group == 0) wait();
  }
};

/// Accumulates `k_tiles` K tiles in ranges of `range`, in the order of GemmSizes::range: two ranges are accumulated
/// at a time. Of a cluster along K each block has such a pair, the one of its number.
template <class Tile, class T>
DEV void wgmma_in_ranges(MmaSums<Tile>& sums, StageRing<Tile>& ring, const StageTurns<Tile>& turns, int k_tiles,
                         int range) {
  static_assert(Tile::kParts == 1 && !kAddsStages<T>);
  constexpr int kFragments = Tile::kN / 8;
  const uint32_t rows = rows_of_group<Tile>();
  float apart[2][kFragments][4];
  sums = {};
  constexpr bool kShared = Tile::kAlongK > 1;
  const int half = kSumRanges / 2 * range, begin = kShared ? cluster_rank() * range : 0;
  NO_UNROLL for (int first = begin; first < k_tiles && first < half; first += kShared ? half : range) {
    uint32_t last_empty = 0;  // of the stage whose products may still be running, if any
    const auto multiply = [&](float(&to)[kFragments][4], int from) {
      NO_UNROLL for (int k_tile = from; k_tile < from + range && k_tile < k_tiles; ++k_tile) {
        mbarrier_wait(ring.full(), ring.phase);
        const uint64_t a = wgmma_rows(ring.a() + rows), b = wgmma_rows(ring.b());
        turns.wait();
        wgmma_fence();
        UNROLL for (int k = 0; k < Tile::kRowBytes / 32; ++k)
            wgmma(T{}, to, a + 2 * k, b + 2 * k, k_tile > from || k > 0);
        wgmma_commit();
        turns.pass();
        wgmma_wait<1>();
        if (last_empty) leave_stage<Tile>(last_empty);
        last_empty = ring.empty();
        ring.advance();
      }
    };
    multiply(apart[0], first);
    const bool two = first + half < k_tiles;
    if (two) multiply(apart[1], first + half);
    wgmma_wait<0>();
    wgmma_settle(apart[0]);
    wgmma_settle(apart[1]);
    leave_stage<Tile>(last_empty);
    UNROLL for (int j = 0; j < kFragments; ++j) UNROLL for (int e = 0; e < 4; ++e) {
      sums.v[0][j][e] += two ? apart[0][j][e] + apart[1][j][e] : apart[0][j][e];
    }
  }
}

/// Scales results of a permuted B by the factors for their positions. `columns`: per lane; rows below zero are outside.
template <class Tile, class Scaled, int kLanes, class Params, class RowOf>
DEV void scale_permuted(const Params& p, MmaSums<Tile>& sums, int first_row, RowOf row_of, int column, int columns) {
  constexpr int kWidth = Scaled::kWidth, kVectors = 8 / kWidth, kFragments = Tile::kWarpN / kLanes / 8;
  const int some_row = row_of(0);
  if (some_row < 0) return;
  UNROLL for (int i = 0; i < MmaSums<Tile>::kRows; ++i) UNROLL for (int half = 0; half < 2; ++half) {
    const int row = row_of(first_row + fragment_stride<Tile>() * i + 8 * half + lane() / 4);
    UNROLL for (int part = 0; part < kLanes; ++part) UNROLL for (int j = 0; j < kFragments; j += 4) {
      UNROLL for (int vector = 0; vector < kVectors; ++vector) {
        const int at = column + j * 8 + lane() % 4 * 8 + vector * kWidth;
        auto value = [&](int e) -> float& {
          const int of_eight = vector * kWidth + e;
          return sums.v[i][part * kFragments + j + of_eight / 2][2 * half + of_eight % 2];
        };
        Frag<float, kWidth> acc[1];
        UNROLL for (int e = 0; e < kWidth; ++e) acc[0].v[e] = value(e);
        acc[0] =
            Scaled::compute(p, row < 0 ? some_row : row, part * columns + (at < columns ? at : column), acc).counted;
        UNROLL for (int e = 0; e < kWidth; ++e) value(e) = acc[0].v[e];
      }
    }
  }
}

/// Accumulates kBlocks K blocks of 16 columns from a stage of 16-bit operands.
template <class Tile, class T, int kBlocks>
DEV void wgmma_add_k_blocks(MmaSums<Tile>& sums, const StageRing<Tile>& ring) {
  wgmma_fence();
  UNROLL for (int part = 0; part < Tile::kParts; ++part) {
    const uint64_t a = wgmma_rows(ring.a() + rows_of_group<Tile>() + part * 64 * Tile::kRowBytes);
    const uint64_t b = wgmma_rows(ring.b());
    UNROLL for (int k = 0; k < kBlocks; ++k) wgmma(T{}, sums.v[part], a + 2 * k, b + 2 * k);
  }
  wgmma_commit();
  wgmma_wait<0>();
  UNROLL for (int part = 0; part < Tile::kParts; ++part) wgmma_settle(sums.v[part]);
}

/// Accumulates a product of `columns` columns of K, of 16-bit operands.
template <class Tile, class T>
DEV void wgmma_add(MmaSums<Tile>& sums, StageRing<Tile>& ring, int columns) {
  NO_UNROLL for (; columns > 0; columns -= kBranchColumns) {
    mbarrier_wait(ring.full(), ring.phase);
    if (columns > kBranchColumns / 2)
      wgmma_add_k_blocks<Tile, T, 4>(sums, ring);
    else
      wgmma_add_k_blocks<Tile, T, 2>(sums, ring);
    leave_stage<Tile>(ring.empty());
    ring.advance();
  }
}

/// Operand A is behind no norm (wgmma_norms.h).
struct NoNorm {
  static constexpr bool kApplies = false;
  template <class Tile, class T>
  struct Rows {};
};

/// The consumer: multiplies and runs the epilogue for all this block's items.
template <class Tile, class T, class Epilogue, class Params, class Problem>
DEV void wgmma_consume(const Params& p, const Problem& problem) {
  StageRing<Tile> ring;
  MmaSums<Tile> sums;
  const int w = warp() - 4;
  unsigned char* shared = shared_memory();
  const WarpPlace place{w / 4 * (64 * Tile::kParts) + w % 4 * 16, 0,
                        reinterpret_cast<float*>(shared + Tile::kSlabsAt + w * Tile::kSlabBytes)};
  uint32_t* came = reinterpret_cast<uint32_t*>(shared + Tile::kBarriersAt + 16 * Tile::kStages);
  const StageTurns<Tile> turns(Tile::kInRanges);
  typename Problem::Norm::template Rows<Tile, T> rows;
  for (int index = first_item<Tile>(); index < problem.items(); index += item_stride<Tile>()) {
    const auto item = problem.item(index);
    if constexpr (Tile::kInRanges)
      wgmma_in_ranges<Tile, T>(sums, ring, turns, problem.stages(), problem.range());
    else if constexpr (kAddsStages<T>)
      wgmma_loop<Tile, T>(sums, ring, problem.k_tiles(item).count);
    else if constexpr (Problem::Norm::kApplies)
      rows.template multiply<Epilogue::kLanes>(p, sums, ring, problem, item);
    else
      wgmma_loop<Tile, T, Problem::kColumnsA, Problem::kColumnsB>(sums, ring, problem.k_tiles(item).count, [] {});
    const auto row_of = [&](int i) { return problem.row_of(item, i); };
    if constexpr (Problem::kBranches) {
      if constexpr (Problem::kColumnsB) permute_sums<Tile>(sums);
      using Branch = typename Problem::Branch;
      if constexpr (Branch::kScales)
        scale_permuted<Tile, typename Branch::Scaled, Epilogue::kLanes>(p, sums, place.row, row_of,
                                                                        problem.column(item), problem.columns());
      wgmma_add<Tile, typename Branch::A::T>(sums, ring, problem.branch_columns());
    }
    if constexpr (Tile::kAlongK > 1) return finish_shared<Tile, Epilogue, SumCrew<Tile>>(p, problem, item, sums, place);
    if (row_of(0) < 0) continue;  // a cluster's tile that is outside
    if (item.parts > 1 && !mma_meet<Tile, SumCrew<Tile>>(p.sizes.split, item.tile, item.part, sums, came)) continue;
    if constexpr (Problem::kColumnsB && !Problem::kBranches) permute_sums<Tile>(sums);
    mma_finish<Tile, Epilogue, SumCrew<Tile>>(p, sums, place, row_of, problem.column(item), problem.columns(),
                                              [&] { return problem.samples(item); });
  }
  if constexpr (Tile::kInRanges) turns.finish();
}

/// The whole kernel. A Problem defines the items, what to copy for each K tile of an item and how many bytes that is,
/// the rows and the samples they belong to, whether B is valid before preceding kernels have ended, which operands are
/// stored transposed, and whether a narrow product is added (gemm_wgmma.h).
template <class Tile, class T, class Epilogue, class Params, class Problem>
DEV void wgmma_run(const Params& p, const Problem& problem) {
  StageRing<Tile> ring;
  if (thread_index() == 0) {
    for (; ring.phase == 0; ring.advance()) {
      mbarrier_init(ring.full(), 1);
      mbarrier_init(ring.empty(), Tile::kSumWarps * Tile::kCluster);
    }
    mbarrier_init_fence();
  }
  if constexpr (Tile::kCluster > 1)
    sync_cluster();
  else
    sync_block();
  // With 384 threads there are 168 registers each; the producer needs few.
  constexpr bool kMovesRegisters = Tile::kThreads > 256 && Tile::kResident == 1;
  if (warp_uniform() < 4) {
    if constexpr (kMovesRegisters) registers_decrease<40>();
    if (thread_index() == 0) wgmma_produce<Tile>(problem);
    if constexpr (Tile::kAlongK > 1) sync_cluster(), sync_cluster();  // meet_in_cluster's
  } else {
    if constexpr (kMovesRegisters) registers_increase<232>();
    griddep_wait();
    griddep_launch();  // the next kernel's blocks do their own wait for this one's end
    wgmma_consume<Tile, T, Epilogue>(p, problem);
  }
  if constexpr (Tile::kCluster > 1) sync_cluster();  // other blocks may still access this block's shared memory
}

}  // namespace tenon::device
