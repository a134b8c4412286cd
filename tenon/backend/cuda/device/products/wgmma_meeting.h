// How the blocks of a cluster along K meet: each holds a part of the sums of the whole tile, and gets all parts of its
// share, some of the tile's columns, through shared memory. So a tile's sums are neither written to memory nor added by
// one block alone, and all blocks run the epilogue.
#pragma once
#include "tenon/backend/cuda/device/products/mma_results.h"

namespace tenon::device {

/// The share of a tile that one block of the cluster finishes, to be treated as a tile: all rows, kBlocks blocks of 32
/// columns. The last blocks of a cluster may have none.
template <class Tile>
struct WgmmaShare {
  static constexpr int kBlocks = (Tile::kN / 32 + Tile::kAlongK - 1) / Tile::kAlongK;
  static constexpr int kM = Tile::kM, kN = 32 * kBlocks, kWarpM = Tile::kWarpM, kWarpN = kN;
  static constexpr int kFragmentStride = Tile::kFragmentStride, kSumThreads = Tile::kSumThreads, kMaxCalls = 8;
  static constexpr int kResident = Tile::kResident, kSlabBytes = Tile::kSlabBytes;
  static constexpr bool kPermutesB = true;
  static constexpr int kBytes = Tile::kAlongK * kM * kN * 4;  ///< of shared memory, for all parts
  static_assert(kBytes <= Tile::kStages * Tile::kStageBytes && Tile::kN % kN == 0);
};

/// Sends each block its share of the sums, and adds, in the order of K, what came for this block. The operands' shared
/// memory is used. Every thread of the cluster's other warps calls sync_cluster twice. Crew: the threads with sums.
template <class Tile, class Crew>
DEV void meet_in_cluster(const MmaSums<Tile>& sums, MmaSums<WgmmaShare<Tile>>& share, int rank) {
  using Fragment = Frag<float, 4>;
  constexpr int kRows = MmaSums<Tile>::kRows, kOwned = MmaSums<WgmmaShare<Tile>>::kColumns;
  Fragment* const parts = reinterpret_cast<Fragment*>(shared_memory()) + Crew::index();
  const auto place = [&](int part, int row, int column) {
    return parts + ((part * kRows + row) * kOwned + column) * Tile::kSumThreads;
  };
  sync_cluster();  // no block needs its operands any more
  UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int j = 0; j < MmaSums<Tile>::kColumns; ++j) {
    store_at(shared_address(place(rank, i, j % kOwned)), sums.v[i][j], j / kOwned);
  }
  sync_cluster();
  share = {};
  NO_UNROLL for (int part = 0; part < Tile::kAlongK; ++part) {
    UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int j = 0; j < kOwned; ++j) {
      const Fragment other = *place(part, i, j);
      UNROLL for (int e = 0; e < 4; ++e) share.v[i][j][e] += other.v[e];
    }
  }
}

/// Ends an item of a cluster along K: this block finishes its share of the tile.
template <class Tile, class Epilogue, class Crew, class Params, class Problem, class Item>
DEV void finish_shared(const Params& p, const Problem& problem, const Item& item, const MmaSums<Tile>& sums,
                       const WarpPlace& place) {
  using Share = WgmmaShare<Tile>;
  static_assert(Epilogue::kLanes == 1 && !Problem::kBranches);
  MmaSums<Share> share;
  const int rank = cluster_rank(), column = problem.column(item) + rank * Share::kN;
  meet_in_cluster<Tile, Crew>(sums, share, rank);
  if (rank * Share::kN >= Tile::kN || column >= problem.columns()) return;
  if constexpr (Problem::kColumnsB) permute_sums<Share>(share);
  mma_finish<Share, Epilogue, Crew>(
      p, share, place, [&](int i) { return problem.row_of(item, i); }, column, problem.columns(),
      [&] { return problem.samples(item); });
}

}  // namespace tenon::device
