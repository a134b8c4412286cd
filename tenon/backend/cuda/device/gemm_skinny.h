// The matrix product of a few rows with mma: as long as it takes to read operand B once. The warps of a block share
// K; each loads its pieces of B from memory straight into fragments, the first of them before the kernel in front has
// ended, and their sums meet in shared memory in the order of the warps. How K is shared does not depend on the number
// of rows, so that a row's result is the same alone and among others.
//
//   B [8 rows a group][32 of K] --16 bytes a lane--> fragments of two mma, whose K is permuted; A likewise
//
// A may be computed in front of the product, a row a warp, into shared memory behind the sums.
//
// grid.x = blocks of 32 columns of a lane / SkinnyTile::kColumns; SkinnyTile::kThreads, SkinnyTile::kSharedBytes.
#pragma once
#include "tenon/backend/cuda/device/mma_tile.h"
#include "tenon/backend/cuda/device/rows.h"

namespace tenon::device {

/// Up to kRows_ (8 or 16) rows, kGroups_ times 8 columns of each lane, kWarps_ warps that share K, of which each has
/// kAhead_ pieces of 32 on their way.
template <int kRows_, int kGroups_, int kWarps_, int kAhead_>
struct SkinnyTile {
  static constexpr int kRows = kRows_, kGroups = kGroups_, kWarps = kWarps_, kAhead = kAhead_;
  static constexpr int kThreads = 32 * kWarps, kColumns = 8 * kGroups;
  static constexpr int kPiece = 32;  ///< of K
  static_assert(kRows == 8 || kRows == 16, "a fragment's rows");
  static_assert(kGroups == 1 || kGroups == 2 || kGroups == 4, "whole parts of a run");
};

/// Fragments of 32 of K: the words of columns 8q .. 8q + 7 in lanes 4r + q, of row r.
struct SkinnyPiece {
  uint32_t words[4];

  /// kShared: the operand lies in shared memory.
  template <class Operand, bool kShared = false>
  DEV void load(const typename Operand::Row& row, int column, bool present) {
    UNROLL for (int i = 0; i < 4; ++i) words[i] = 0;
    if (!present) return;
    if constexpr (kShared) {
      const auto x = device::load<uint32_t, 4>(reinterpret_cast<const uint32_t*>(Operand::at(row, column)));
      UNROLL for (int i = 0; i < 4; ++i) words[i] = x.v[i];
    } else {
      copy_past_l1<16>(words, Operand::at(row, column));
    }
  }
};

/// Operand A lies in memory.
struct NoFront {
  static constexpr bool kGiven = false;
};
/// Operand A is computed in front of the product, by every block for itself, and lies in its shared memory: whole rows,
/// one a warp, by Program as device/rows.h has it, of up to R * kRun * 32 columns.
template <class Program, int R>
struct RowsInFront {
  static constexpr bool kGiven = true;
  struct Loaded {
    DEV void operator()() const {}
  };
  template <class Params>
  DEV static void compute(const Params& p) {
    NO_UNROLL for (int row = warp(); row < p.sizes.m; row += block_threads() / 32)
        Program::template run<R>(p, row, p.sizes.k, WarpTeam{true}, Loaded{});
  }
};

/// The sums of the block's warps, where they meet: [warp][lane of the epilogue][group][fragment].
template <class Tile, int kLanes>
struct SkinnySums {
  using Place = Frag<float, 2>;
  DEV static Place* at(int warp, int tile, int half, int member) {
    return reinterpret_cast<Place*>(shared_memory()) +
           ((warp * kLanes * Tile::kGroups + tile) * (Tile::kRows / 8) + half) * 32 + member;
  }
  /// Columns 2q and 2q + 1 of row r, added up.
  DEV static Place total(int tile, int row, int q) {
    Place sum = *at(0, tile, row / 8, row % 8 * 4 + q);
    UNROLL for (int w = 1; w < Tile::kWarps; ++w) {
      const Place other = *at(w, tile, row / 8, row % 8 * 4 + q);
      sum.v[0] += other.v[0], sum.v[1] += other.v[1];
    }
    return sum;
  }
};

/// The epilogue of the block's results: two columns of a row a thread.
template <class Tile, class B, class Epilogue, class Params>
DEV void skinny_store(const Params& p, int first, int columns) {
  constexpr int kLanes = Epilogue::kLanes, kRun = Epilogue::kRun;
  static_assert(kRun <= 2);
  const int items = p.sizes.m * Tile::kGroups * 4;
  for (int i = thread_index(); i < items; i += Tile::kThreads) {
    const int q = i % 4, group = i / 4 % Tile::kGroups, row = i / 4 / Tile::kGroups;
    const int stored = first + 8 * group + 2 * q;
    const int column = B::kInRuns ? stored / 32 * 32 + column_in_runs(stored % 32) : stored;
    Frag<float, 2> sums[kLanes];
    UNROLL for (int l = 0; l < kLanes; ++l) sums[l] =
        SkinnySums<Tile, kLanes>::total(l * Tile::kGroups + group, row, q);
    UNROLL for (int c = 0; c < 2; c += kRun) {
      if (column + c >= columns) continue;
      Frag<float, kRun> acc[kLanes];
      UNROLL for (int l = 0; l < kLanes; ++l) { UNROLL for (int e = 0; e < kRun; ++e) acc[l].v[e] = sums[l].v[c + e]; }
      Epilogue::store(p, row, column + c, Epilogue::compute(p, row, column + c, acc));
    }
  }
}

template <class Tile, class A, class B, class Epilogue, class Front = NoFront, class Params>
DEV void gemm_skinny(const Params& p) {
  using T = typename A::T;
  constexpr int kLanes = Epilogue::kLanes, kTiles = kLanes * Tile::kGroups, kHalves = Tile::kRows / 8;
  constexpr int kAhead = Tile::kAhead, kStep = Tile::kWarps * Tile::kPiece;
  const GemmSizes& g = p.sizes;
  const int columns = g.n / kLanes, first = block_x() * Tile::kColumns;
  const int member = lane() / 4, k_first = warp() * Tile::kPiece + lane() % 4 * 8;
  if constexpr (!B::kConstant) griddep_wait();
  typename B::Row b[kTiles];
  UNROLL for (int t = 0; t < kTiles; ++t) {
    const int row = first + t % Tile::kGroups * 8 + member;
    const bool inside = row < columns || (B::kInRuns && kLanes == 1);  // rows in runs are padded to whole ones
    b[t] = B::row(p, t / Tile::kGroups * columns + (inside ? row : columns - 1));
  }
  SkinnyPiece right[kAhead][kTiles], left[kAhead][kHalves];
  auto fetch_right = [&](int i, int k) {
    UNROLL for (int t = 0; t < kTiles; ++t) right[i][t].template load<B>(b[t], k, k < g.k);
  };
  UNROLL for (int i = 0; i < kAhead; ++i) fetch_right(i, k_first + i * kStep);

  if constexpr (B::kConstant) griddep_wait();
  griddep_launch();
  if constexpr (Front::kGiven) {
    Front::compute(p);
    sync_block();
  }
  typename A::Row a[kHalves];
  UNROLL for (int h = 0; h < kHalves; ++h) a[h] = A::row(p, 8 * h + member < g.m ? 8 * h + member : 0);
  auto fetch_left = [&](int i, int k) {
    UNROLL for (int h = 0; h < kHalves; ++h) left[i][h].template load<A, Front::kGiven>(
        a[h], k, 8 * h + member < g.m && k < g.k);
  };
  UNROLL for (int i = 0; i < kAhead; ++i) fetch_left(i, k_first + i * kStep);

  float sums[kTiles][4] = {};
  NO_UNROLL for (int k0 = k_first; k0 - lane() % 4 * 8 < g.k; k0 += kAhead * kStep) {
    UNROLL for (int i = 0; i < kAhead; ++i) {
      UNROLL for (int s = 0; s < 4; s += 2) {
        uint32_t x[4] = {left[i][0].words[s], 0, left[i][0].words[s + 1], 0};
        if constexpr (kHalves == 2) x[1] = left[i][1].words[s], x[3] = left[i][1].words[s + 1];
        UNROLL for (int t = 0; t < kTiles; ++t) {
          const uint32_t w[2] = {right[i][t].words[s], right[i][t].words[s + 1]};
          mma(T{}, sums[t], x, w);
        }
      }
      fetch_right(i, k0 + (kAhead + i) * kStep);
      fetch_left(i, k0 + (kAhead + i) * kStep);
    }
  }
  using Meeting = SkinnySums<Tile, kLanes>;
  UNROLL for (int t = 0; t < kTiles; ++t) {
    UNROLL for (int h = 0; h < kHalves; ++h) *
        Meeting::at(warp(), t, h, lane()) = {{sums[t][2 * h], sums[t][2 * h + 1]}};
  }
  sync_block();
  skinny_store<Tile, B, Epilogue>(p, first, columns);
}

}  // namespace tenon::device
