// Results of a block's tile, wherever they were computed: registers as mma and wgmma leave them, their meeting under
// split K, and their way to the epilogue, through shared memory so that it gets whole runs of columns.
//
// An epilogue is a struct with kLanes (the product's columns are kLanes equal parts, and one column of each is given
// together), kRun (columns a call: 1, 2, 4 or 8; a lane's columns are a multiple), a type Computed,
// Computed compute(p, row, col, acc) with a Frag<float, kRun> for each lane, and store(p, row, col, computed). There
// are two so that the loads of several fragments are under way at once: nothing moves over a store by itself. One that
// counts what it stores: mma_counts.h.
#pragma once
#include "tenon/device/core_sizes.h"
#include "tenon/device/elements.h"
#include "tenon/device/mma_counts.h"

namespace tenon::device {

/// A warp's part of the results: [16 rows][8 columns] fragments as mma leaves them.
template <class Tile>
struct MmaSums {
  static constexpr int kRows = Tile::kWarpM / 16, kColumns = Tile::kWarpN / 8;
  float v[kRows][kColumns][4];
};

/// Gives the sums of this block to the last block of its tile, in a fixed order. False in all others: they are done.
/// `came`: a word of shared memory that nobody else uses; Crew: the threads with sums, Tile::kSumThreads of them.
template <class Tile, class Crew>
DEV bool mma_meet(const SplitK& split, int tile, int part, MmaSums<Tile>& sums, uint32_t* came) {
  using Piece = Frag<float, 4>;
  constexpr int kColumns = MmaSums<Tile>::kColumns, kPieces = MmaSums<Tile>::kRows * kColumns;
  auto pieces = [&](int from) {
    const int64_t first = (static_cast<int64_t>(tile) * split.splits + from) * (Tile::kM * Tile::kN);
    return reinterpret_cast<Piece*>(split.workspace + first) + Crew::index();
  };
  Piece* mine = pieces(part);
  UNROLL for (int i = 0; i < kPieces; ++i) {
    const float(&v)[4] = sums.v[i / kColumns][i % kColumns];
    mine[i * Tile::kSumThreads] = Piece{{v[0], v[1], v[2], v[3]}};
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
    const Piece* other = pieces(from);
    UNROLL for (int i = 0; i < kPieces; ++i) {
      const Piece piece = other[i * Tile::kSumThreads];
      UNROLL for (int e = 0; e < 4; ++e) sums.v[i / kColumns][i % kColumns][e] += piece.v[e];
    }
  }
  return true;
}

/// The columns of a tile whose epilogue has kLanes lanes: each warp's columns are kLanes equal parts, one a lane, so
/// that the columns that meet in the epilogue lie in one warp.
template <class Tile, int kLanes>
struct LaneColumns {
  static constexpr int kTile = Tile::kN / kLanes, kWarp = Tile::kWarpN / kLanes;  ///< columns of a lane
  static_assert(Tile::kSlabColumns % (8 * kLanes) == 0, "a slab holds whole fragments of every lane");
  /// The row of B behind row i of the tile: column `first` on of each lane, clamped to the lane's `columns`.
  DEV static int source(int i, int first, int columns) {
    const int inside = i % Tile::kWarpN, column = first + i / Tile::kWarpN * kWarp + inside % kWarp;
    return inside / kWarp * columns + (column < columns ? column : columns - 1);
  }
};

struct WarpPlace {
  int row, column;
  float* slab;  ///< 16 rows of Tile::kSlabColumns + 8 floats: 8 more, so that the lanes' pairs meet no bank twice
};

/// Rows from one 16-row fragment of a warp to its next: next to each other, or as the tile says.
template <class Tile>
DEV constexpr int fragment_step() {
  if constexpr (requires { Tile::kFragmentStep; })
    return Tile::kFragmentStep;
  else
    return 16;
}

/// Runs the epilogue over a warp's results, a slab of 16 rows and kSlabColumns columns at a time. row_of(i): what the
/// epilogue calls row i of the tile, below zero outside (row 0 is inside); `column`: the tile's first, of `columns` in
/// a lane. Counts what is stored if the epilogue wants that.
template <class Tile, class Epilogue, class Params, class RowOf>
DEV void mma_store(const Params& p, const MmaSums<Tile>& sums, const WarpPlace& place, RowOf row_of, int column,
                   int columns, WarpCounts<Tile, Epilogue>& counts) {
  constexpr int kLanes = Epilogue::kLanes, kRun = Epilogue::kRun, kSlabRow = Tile::kSlabColumns + 8;
  constexpr int kLane = Tile::kSlabColumns / kLanes;  // columns of a lane in a slab
  constexpr int kRuns = kLane / kRun, kFragments = kLane / 8, kItems = 16 * kRuns, kPasses = (kItems + 31) / 32;
  constexpr int kTogether = kPasses < 4 ? kPasses : 4;
  static_assert(kLane % kRun == 0);
  const int l = lane(), some_row = row_of(0);
  float* pair = place.slab + l / 4 * kSlabRow + l % 4 * 2;
  UNROLL for (int i = 0; i < MmaSums<Tile>::kRows; ++i) {
    int rows[kPasses];
    UNROLL for (int pass = 0; pass < kPasses; ++pass) {
      const int item = pass * 32 + l;
      rows[pass] = item < kItems ? row_of(place.row + fragment_step<Tile>() * i + item / kRuns) : -1;
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
          const int item = (first + t) * 32 + l, at = column + place.column + slab * kLane + item % kRuns * kRun;
          const int row = rows[first + t];
          const float* from = place.slab + (item < kItems ? item / kRuns : 0) * kSlabRow + item % kRuns * kRun;
          Frag<float, kRun> values[kLanes];
          UNROLL for (int part = 0; part < kLanes; ++part) values[part] = load<float, kRun>(from + part * kLane);
          // What lies outside is computed where something lies and not stored: a branch would keep loads apart.
          computed[t] = Epilogue::compute(p, row < 0 ? some_row : row, at < columns ? at : column, values);
        }
        UNROLL for (int t = 0; t < kTogether && first + t < kPasses; ++t) {
          const int item = (first + t) * 32 + l, at = column + place.column + slab * kLane + item % kRuns * kRun;
          const bool inside = rows[first + t] >= 0 && at < columns;
          if (inside) Epilogue::store(p, rows[first + t], at, computed[t]);
          if constexpr (Counting<Epilogue>) {  // over the first lane's columns
            if (item < kItems)
              store(place.slab + item / kRuns * kSlabRow + item % kRuns * kRun,
                    inside ? computed[t].counted : splat<kRun>(0.0f));
          }
        }
      }
      sync_warp();
      if constexpr (Counting<Epilogue>) {
        counts.add(place.slab, slab);
        sync_warp();
      }
    }
  }
}

/// The same where nothing is counted.
template <class Tile, class Epilogue, class Params, class RowOf>
DEV void mma_store(const Params& p, const MmaSums<Tile>& sums, const WarpPlace& place, RowOf row_of, int column,
                   int columns) {
  WarpCounts<Tile, Epilogue> nothing;
  mma_store<Tile, Epilogue>(p, sums, place, row_of, column, columns, nothing);
}

/// mma_store, and the end of the count: `samples()` says which samples the tile's rows belong to.
template <class Tile, class Epilogue, class Crew, class Params, class RowOf, class SamplesOf>
DEV void mma_finish(const Params& p, const MmaSums<Tile>& sums, const WarpPlace& place, RowOf row_of, int column,
                    int columns, SamplesOf samples) {
  WarpCounts<Tile, Epilogue> counts;
  mma_store<Tile, Epilogue>(p, sums, place, row_of, column, columns, counts);
  if constexpr (Counting<Epilogue>) mma_count<Tile, Epilogue, Crew>(p, counts, samples(), place.slab, column, columns);
}

/// Steps of K that part `part` of `splits` does.
struct StepRange {
  int first, count;
  DEV StepRange(int all, int splits, int part) {
    const int each = (all + splits - 1) / splits;
    first = part * each;
    count = first + each < all ? each : all - first;  // below zero: nothing
  }
};

/// Tile `index` of a grid of tiles, so that blocks that run together share rows of both operands: groups of 8 rows of
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
