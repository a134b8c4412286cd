// The matrix product with mma, or in f32 on the CUDA cores: GemmSizes, one tile per block, split-K into
// sizes.split.splits parts.
//
// grid.x = tiles of m * tiles of n, grid.y = splits, grid.z = batch; MmaTile::kThreads, MmaTile::kSharedBytes. Params
// has a member `sizes`; A and B are operands and Epilogue takes the results, as described in mma_tile.h and codegen/.
#pragma once
#include "tenon/backend/cuda/device/products/mma_tile.h"

namespace tenon::device {

template <class Tile, class A, class B, class Epilogue, class Params>
DEV void gemm_mma(const Params& p) {
  using T = typename A::T;
  using Lanes = LaneColumns<Tile, Epilogue::kLanes>;
  const GemmSizes& g = p.sizes;
  const int columns = g.n / Epilogue::kLanes;
  const int tiles_m = (g.m + Tile::kM - 1) / Tile::kM, tiles_n = (columns + Lanes::kTile - 1) / Lanes::kTile;
  const TileAt tile(block_x(), tiles_m, tiles_n);
  const int row = tile.m * Tile::kM, column = tile.n * Lanes::kTile, batch = block_z();
  constexpr int kColumns = Tile::kRowBytes / sizeof(T);
  const TileRange k_tiles((g.k + kColumns - 1) / kColumns, g.split.splits, block_y());

  griddep_wait();
  griddep_launch();
  RowLoader<Tile, Tile::kM, A> a(p, g.k, k_tiles.first,
                                 [&](int i) { return batch * g.m + (row + i < g.m ? row + i : g.m - 1); });
  RowLoader<Tile, Tile::kN, B> b(p, g.k, k_tiles.first, [&](int i) {
    return batch * g.n + Lanes::template source<B::kPermuted>(i, column, columns);
  });
  MmaSums<Tile> sums = {};
  if constexpr (sizeof(T) == 4)
    plain_loop<Tile, true>(p, sums, a, b, k_tiles.count, g.range / kColumns);
  else
    mma_loop<Tile, T>(p, sums, a, b, k_tiles.count);
  if (g.split.splits > 1 && !mma_meet<Tile, WholeBlock>(g.split, batch * grid_x() + block_x(), block_y(), sums,
                                                        reinterpret_cast<uint32_t*>(shared_memory())))
    return;
  mma_finish<Tile, Epilogue, WholeBlock>(
      p, sums, mma_place<Tile, Epilogue::kLanes>(), [&](int i) { return row + i < g.m ? batch * g.m + row + i : -1; },
      column, columns,
      [&] {
        return RowSamples{g.count.inner, tile.m, Tile::kM, g.m};
      });
}

}  // namespace tenon::device
