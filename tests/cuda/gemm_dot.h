// A product by threads that compute a run of results each, a core that is not in the tree: the kernel of dot_core.cpp.
#pragma once
#include "tenon/backend/cuda/device/elements.h"
#include "tenon/backend/cuda/device/products/core_sizes.h"

namespace tenon::device {

template <int threads>
struct DotTile {
  static constexpr int kThreads = threads;
};

/// Position of row `r` of operand B if it is stored permuted: blocks of 32 rows, in which pairs of rows 8 apart are
/// adjacent.
DEV int permuted_row(int r) { return r / 32 * 32 + r % 8 / 2 * 8 + r / 8 % 4 * 2 + r % 2; }

/// grid.x: vectors of results / threads, grid.z: batch.
template <class Tile, class A, class B, class Epilogue, class Params>
DEV void gemm_dot(const Params& p) {
  griddep_wait();
  griddep_launch();
  constexpr int kLanes = Epilogue::kLanes, kWidth = Epilogue::kWidth;
  const GemmSizes& g = p.sizes;
  const int columns = g.n / kLanes, runs = columns / kWidth, at = block_x() * Tile::kThreads + thread_index();
  if (at >= g.m * runs) return;
  const int row = block_z() * g.m + at / runs, column = at % runs * kWidth;
  const typename A::Row a = A::row(p, row);
  Frag<float, kWidth> acc[kLanes] = {};
  for (int l = 0; l < kLanes; ++l)
    for (int i = 0; i < kWidth; ++i) {
      const int of_b = l * columns + column + i;
      const typename B::Row b = B::row(p, block_z() * g.n + (B::kPermuted ? permuted_row(of_b) : of_b));
      for (int k = 0; k < g.k; ++k) acc[l].v[i] += to_float(*A::at(a, k)) * to_float(*B::at(b, k));
    }
  Epilogue::store(p, row, column, Epilogue::compute(p, row, column, acc));
}

}  // namespace tenon::device
