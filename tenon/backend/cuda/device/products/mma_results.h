// Results of a block's tile: their registers in the layout of mma and wgmma, the combination of split-K parts, and the
// way to the epilogue, which gets adjacent columns.
//
// mma leaves a lane two columns of every 8. If the rows of operand B are in shared memory *permuted*, row 8j + 2q + e
// of 32 being column 8q + 2j + e, a lane's two columns of four fragments are 8 contiguous columns, and results go from
// registers to the epilogue. Where that is impossible (attention, narrow warps), lanes exchange results through a slab
// of shared memory. Constant operands are stored permuted in memory too (B::kPermuted); others are permuted while being
// copied.
//
// An epilogue is a struct with kLanes (the product's columns are kLanes equal parts, and one column of each is passed
// together), kWidth (columns per call: 1, 2, 4 or 8; a divisor of a lane's columns), a type Computed, Computed
// compute(p, row, col, acc) with a Frag<float, kWidth> for each lane, and store(p, row, col, computed). The two are
// separate so that the loads of several fragments are in flight together: the compiler moves no load across a store.
// For an epilogue that counts what it stores, see mma_counts.h.
#pragma once
#include "tenon/backend/cuda/device/elements.h"
#include "tenon/backend/cuda/device/products/core_sizes.h"
#include "tenon/backend/cuda/device/products/mma_counts.h"

namespace tenon::device {

/// A warp's part of the results: [16 rows][8 columns] fragments in mma's layout.
template <class Tile>
struct MmaSums {
  static constexpr int kRows = Tile::kWarpM / 16, kColumns = Tile::kWarpN / 8;
  float v[kRows][kColumns][4];
};

/// Combines split-K: gives all sums to the last block of the tile to arrive, added in a fixed order. Returns false in
/// the other blocks, which are done. `came`: an otherwise unused word of shared memory; Crew: the threads with sums,
/// Tile::kSumThreads of them.
template <class Tile, class Crew>
DEV bool mma_meet(const SplitK& split, int tile, int part, MmaSums<Tile>& sums, uint32_t* came) {
  using Fragment = Frag<float, 4>;
  constexpr int kColumns = MmaSums<Tile>::kColumns, kFragments = MmaSums<Tile>::kRows * kColumns;
  auto fragments = [&](int from) {
    const int64_t first = (static_cast<int64_t>(tile) * split.splits + from) * (Tile::kM * Tile::kN);
    return reinterpret_cast<Fragment*>(split.workspace + first) + Crew::index();
  };
  Fragment* mine = fragments(part);
  UNROLL for (int i = 0; i < kFragments; ++i) {
    const float(&v)[4] = sums.v[i / kColumns][i % kColumns];
    mine[i * Tile::kSumThreads] = Fragment{{v[0], v[1], v[2], v[3]}};
  }
  fence_device();
  Crew::sync();
  if (Crew::index() == 0) *came = atomic_add(split.counters + tile, 1);
  Crew::sync();
  const bool last = *came == static_cast<uint32_t>(split.splits - 1);
  Crew::sync();
  if (!last) return false;
  if (Crew::index() == 0) split.counters[tile] = 0;
  fence_device();
  sums = {};
  NO_UNROLL for (int from = 0; from < split.splits; ++from) {
    const Fragment* other = fragments(from);
    UNROLL for (int i = 0; i < kFragments; ++i) {
      const Fragment fragment = other[i * Tile::kSumThreads];
      UNROLL for (int e = 0; e < 4; ++e) sums.v[i / kColumns][i % kColumns][e] += fragment.v[e];
    }
  }
  return true;
}

/// True if the rows of B are permuted: for tiles with kPermutesB, if a lane's columns of a warp are blocks of 32.
template <class Tile, int kLanes>
DEV constexpr bool permutes_b() {
  if constexpr (requires { Tile::kPermutesB; })
    return Tile::kWarpN / kLanes % 32 == 0;
  else
    return false;
}
/// The column of row i in a permuted block of 32; also the row of column i.
DEV constexpr int permuted_column(int i) { return i / 2 % 4 * 8 + i / 8 * 2 + i % 2; }

/// The columns of a tile whose epilogue has kLanes lanes: each warp's columns are kLanes equal parts, one per lane, so
/// that columns combined in the epilogue are in the same warp.
template <class Tile, int kLanes>
struct LaneColumns {
  static constexpr int kTile = Tile::kN / kLanes, kWarp = Tile::kWarpN / kLanes;  ///< columns of a lane
  static_assert(kWarp % 8 == 0, "a lane has whole fragments");
  /// The row of B for row i of the tile, in which each lane starts at column `first`; clamped to the lane's `columns`.
  /// kStored: B is stored permuted in memory.
  template <bool kStored>
  DEV static int source(int i, int first, int columns) {
    const int inside = i % Tile::kWarpN, place = inside % kWarp;
    const int in_warp = permutes_b<Tile, kLanes>() ? place / 32 * 32 + permuted_column(place % 32) : place;
    const int column = first + i / Tile::kWarpN * kWarp + in_warp;
    const int row = inside / kWarp * columns + (column < columns ? column : columns - 1);
    return kStored ? row / 32 * 32 + permuted_column(row % 32) : row;
  }
};

/// Permutes results in plain order: the four lanes that hold a row's columns exchange fragments.
template <class Tile>
DEV void permute_sums(MmaSums<Tile>& sums) {
  UNROLL for (int i = 0; i < sums.kRows; ++i) UNROLL for (int mask = 1; mask <= 2; ++mask) {
    const bool upper = lane() & mask;
    UNROLL for (int j = 0; j < sums.kColumns; ++j) {
      if (j & mask) continue;
      UNROLL for (int e = 0; e < 4; ++e) {
        float &low = sums.v[i][j][e], &high = sums.v[i][j + mask][e];
        const float other = shuffle_xor(upper ? low : high, mask);
        (upper ? low : high) = other;
      }
    }
  }
}

struct WarpPlace {
  int row, column;
  float* slab;  ///< the warp's Tile::kSlabBytes
};

/// Epilogue calls in flight together if it counts: moments need registers, of which a block that shares its
/// multiprocessor has half.
template <class Tile>
DEV constexpr int counted_together() {
  if constexpr (requires { Tile::kResident; })
    return Tile::kResident > 1 ? 4 : Tile::kMaxCalls;
  else
    return Tile::kMaxCalls;
}

/// Runs the epilogue over a warp's results of a permuted B: a lane has 8 columns of row lane / 4 and of that row + 8 in
/// each block of 16 x 32. Accumulates statistics if the epilogue counts.
template <class Tile, class Epilogue, class Params, class RowOf>
DEV void store_permuted(const Params& p, const MmaSums<Tile>& sums, const WarpPlace& place, RowOf row_of, int column,
                        int columns, WarpCounts<Tile, Epilogue>& counts) {
  constexpr int kLanes = Epilogue::kLanes, kWidth = Epilogue::kWidth, kFragments = Tile::kWarpN / kLanes / 8;
  constexpr int kVectors = 8 / kWidth, kItems = kFragments / 4 * 2 * kVectors;  // calls for 16 rows
  constexpr int kMost = Counting<Epilogue> ? counted_together<Tile>() : Tile::kMaxCalls;
  constexpr int kTogether = kItems < kMost ? kItems : kMost;
  const int some_row = row_of(0), first_column = column + place.column + lane() % 4 * 8;
  UNROLL for (int i = 0; i < MmaSums<Tile>::kRows; ++i) {
    const int top = place.row + fragment_stride<Tile>() * i + lane() / 4;
    const int rows[2] = {row_of(top), row_of(top + 8)};
    if constexpr (Counting<Epilogue>) counts.begin_rows(rows);
    UNROLL for (int first = 0; first < kItems; first += kTogether) {
      typename Epilogue::Computed computed[kTogether];
      UNROLL for (int t = 0; t < kTogether && first + t < kItems; ++t) {
        const int item = first + t, vector = item % kVectors, half = item / kVectors % 2, block = item / kVectors / 2;
        const int row = rows[half], at = first_column + block * 32 + vector * kWidth;
        Frag<float, kWidth> values[kLanes];
        UNROLL for (int part = 0; part < kLanes; ++part) UNROLL for (int e = 0; e < kWidth; ++e) {
          const int of_eight = vector * kWidth + e;
          values[part].v[e] = sums.v[i][part * kFragments + block * 4 + of_eight / 2][2 * half + of_eight % 2];
        }
        // Results outside are computed at an inside position and not stored: a branch would serialize the loads.
        computed[t] = Epilogue::compute(p, row < 0 ? some_row : row, at < columns ? at : column, values);
      }
      UNROLL for (int t = 0; t < kTogether && first + t < kItems; ++t) {
        const int item = first + t, vector = item % kVectors, half = item / kVectors % 2, block = item / kVectors / 2;
        const int row = rows[half], at = first_column + block * 32 + vector * kWidth;
        const bool inside = row >= 0 && at < columns;
        if (inside) Epilogue::store(p, row, at, computed[t]);
        if constexpr (Counting<Epilogue>) {  // over the first lane's columns
          counts.add(half, row >= 0, vector * kWidth, computed[t].counted);
          if (half == 1 && vector == kVectors - 1) counts.end_block(block, i == 0);
        }
      }
    }
    if constexpr (Counting<Epilogue>) counts.end_rows();
  }
}

/// The same for results in plain order, in slabs of 16 rows and Tile::kSlabColumns columns. Slab rows are padded by 8
/// floats, so that the lanes' pairs have no bank conflicts.
template <class Tile, class Epilogue, class Params, class RowOf>
DEV void store_slabs(const Params& p, const MmaSums<Tile>& sums, const WarpPlace& place, RowOf row_of, int column,
                     int columns) {
  constexpr int kLanes = Epilogue::kLanes, kWidth = Epilogue::kWidth, kSlabRow = Tile::kSlabColumns + 8;
  constexpr int kLane = Tile::kSlabColumns / kLanes;  // columns of a lane in a slab
  constexpr int kVectors = kLane / kWidth, kFragments = kLane / 8, kItems = 16 * kVectors, kPasses = (kItems + 31) / 32;
  constexpr int kTogether = kPasses < 4 ? kPasses : 4;
  static_assert(kLane % 8 == 0 && kLane % kWidth == 0, "a slab holds whole fragments of every lane");
  const int l = lane(), some_row = row_of(0);
  float* pair = place.slab + l / 4 * kSlabRow + l % 4 * 2;
  UNROLL for (int i = 0; i < MmaSums<Tile>::kRows; ++i) {
    int rows[kPasses];
    UNROLL for (int pass = 0; pass < kPasses; ++pass) {
      const int item = pass * 32 + l;
      rows[pass] = item < kItems ? row_of(place.row + fragment_stride<Tile>() * i + item / kVectors) : -1;
    }
    UNROLL for (int slab = 0; slab < Tile::kWarpN / Tile::kSlabColumns; ++slab) {
      UNROLL for (int j = 0; j < Tile::kSlabColumns / 8; ++j) {
        const int from = j / kFragments * (Tile::kWarpN / kLanes / 8) + slab * kFragments + j % kFragments;
        const float(&v)[4] = sums.v[i][from];
        store(pair + 8 * j, Frag<float, 2>{{v[0], v[1]}});
        store(pair + 8 * kSlabRow + 8 * j, Frag<float, 2>{{v[2], v[3]}});
      }
      sync_warp();
      UNROLL for (int first = 0; first < kPasses; first += kTogether) {
        typename Epilogue::Computed computed[kTogether];
        UNROLL for (int t = 0; t < kTogether && first + t < kPasses; ++t) {
          const int item = (first + t) * 32 + l, at = column + place.column + slab * kLane + item % kVectors * kWidth;
          const int row = rows[first + t];
          const float* from = place.slab + (item < kItems ? item / kVectors : 0) * kSlabRow + item % kVectors * kWidth;
          Frag<float, kWidth> values[kLanes];
          UNROLL for (int part = 0; part < kLanes; ++part) values[part] = load<float, kWidth>(from + part * kLane);
          computed[t] = Epilogue::compute(p, row < 0 ? some_row : row, at < columns ? at : column, values);
        }
        UNROLL for (int t = 0; t < kTogether && first + t < kPasses; ++t) {
          const int item = (first + t) * 32 + l, at = column + place.column + slab * kLane + item % kVectors * kWidth;
          if (rows[first + t] >= 0 && at < columns) Epilogue::store(p, rows[first + t], at, computed[t]);
        }
      }
      sync_warp();
    }
  }
}

/// Runs the epilogue over a warp's results. row_of(i): the epilogue's row for row i of the tile, below zero outside
/// (row 0 is inside); `column`: the tile's first of `columns` in a lane.
template <class Tile, class Epilogue, class Params, class RowOf>
DEV void mma_store(const Params& p, const MmaSums<Tile>& sums, const WarpPlace& place, RowOf row_of, int column,
                   int columns) {
  if constexpr (permutes_b<Tile, Epilogue::kLanes>()) {
    WarpCounts<Tile, Epilogue> nothing;
    store_permuted<Tile, Epilogue>(p, sums, place, row_of, column, columns, nothing);
  } else {
    store_slabs<Tile, Epilogue>(p, sums, place, row_of, column, columns);
  }
}

/// mma_store, plus statistics if the epilogue counts: `samples()` tells which samples the tile's rows belong to. Only
/// results of a permuted B can be counted.
template <class Tile, class Epilogue, class Crew, class Params, class RowOf, class SamplesOf>
DEV void mma_finish(const Params& p, const MmaSums<Tile>& sums, const WarpPlace& place, RowOf row_of, int column,
                    int columns, SamplesOf samples) {
  if constexpr (Counting<Epilogue>) {
    static_assert(permutes_b<Tile, Epilogue::kLanes>());
    WarpCounts<Tile, Epilogue> counts;
    store_permuted<Tile, Epilogue>(p, sums, place, row_of, column, columns, counts);
    mma_count<Tile, Epilogue, Crew>(p, counts, samples(), place.slab, column, columns);
  } else {
    mma_store<Tile, Epilogue>(p, sums, place, row_of, column, columns);
  }
}

/// The tiles of K, or of keys, that split `split` of `splits` computes.
struct TileRange {
  int first, count;
  DEV TileRange(int first, int count) : first(first), count(count) {}
  DEV TileRange(int all, int splits, int split) {
    const int each = (all + splits - 1) / splits;
    first = split * each;
    count = first + each < all ? each : all - first;  // below zero: none
  }
};

/// Position of tile `index` in the grid. Blocks that run together share rows of both operands: groups of 8 rows of
/// tiles, column by column.
struct TileAt {
  int m, n;
  DEV TileAt(int index, int tiles_m, int tiles_n) {
    constexpr int kGroup = 8;
    const int group = index / (kGroup * tiles_n), first = group * kGroup;
    const int height = tiles_m - first < kGroup ? tiles_m - first : kGroup;
    const int inside = index - group * kGroup * tiles_n;
    m = first + inside % height;
    n = inside / height;
  }
};

}  // namespace tenon::device
