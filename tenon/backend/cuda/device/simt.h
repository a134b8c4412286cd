// Products and convolutions in f32 on the CUDA cores: for f32 plans, and as the reference for the
// tensor-core kernels. Operands are functors of single elements, so that any hole is computed where it is read.
#pragma once
#include "tenon/backend/cuda/device/attention_keys.h"
#include "tenon/backend/cuda/device/elements.h"

namespace tenon::device {

inline constexpr int kSimtTile = 64, kSimtDepth = 16, kSimtThreads = 256;

/// Rows of a product's left operand: X::eval(p, row, k).
template <class X, class Params>
struct ProductRows {
  const Params& p;
  int first;  // row within the batch's matrix
  DEV float operator()(int row, int k) const { return X::eval(p, first + row, k).v[0]; }
};

/// Rows of a convolution's left operand, one per output pixel; k runs over channels, then rows of taps, then taps of a
/// row: the order of a filter [o, c, kh, kw].
template <class X, class Params>
struct PixelRows {
  const Params& p;
  DEV float operator()(int row, int k) const {
    const ConvSizes& s = p.sizes;
    const int taps = s.kernel_h * s.kernel_w, c = k / taps, tap = k % taps;
    const int plane = s.out_height * s.out_width, n = row / plane, at = row % plane;
    const int y = at / s.out_width * s.stride - s.pad_top + tap / s.kernel_w;
    const int x = at % s.out_width * s.stride - s.pad_left + tap % s.kernel_w;
    if (y < 0 || y >= s.height || x < 0 || x >= s.width) return 0.0f;
    return X::eval(p, (n * s.height + y) * s.width + x, c).v[0];
  }
};

template <class Epilogue, class Params, class Sums>
DEV void store_result(const Params& p, int row, int col, const Sums& acc) {
  Epilogue::store(p, row, col, Epilogue::compute(p, row, col, acc));
}

/// A tile of `rows` x `lane_columns` results: block (x, y), 4 x 4 results per thread and lane. W::eval(p, n, k).
template <class W, class Epilogue, class Rows, class Params>
DEV void simt_tile(const Params& p, const Rows& a, int m, int lane_columns, int depth, int first_row,
                   int first_weight) {
  constexpr int kLanes = Epilogue::kLanes, kRun = Epilogue::kRun, kLine = kSimtTile + 4;
  static_assert(kRun <= 4);
  float* left = reinterpret_cast<float*>(shared_memory());  // [depth][line]
  float* right = left + kSimtDepth * kLine;                 // [lane][depth][line]
  const int row0 = block_y() * kSimtTile, col0 = block_x() * kSimtTile;
  const int tx = thread_index() % 16 * 4, ty = thread_index() / 16 * 4;
  float sum[kLanes][4][4] = {};
  for (int k0 = 0; k0 < depth; k0 += kSimtDepth) {
    for (int i = thread_index(); i < kSimtTile * kSimtDepth; i += kSimtThreads) {
      const int line = i / kSimtDepth, k = i % kSimtDepth;
      left[k * kLine + line] = row0 + line < m && k0 + k < depth ? a(row0 + line, k0 + k) : 0.0f;
      for (int l = 0; l < kLanes; ++l)
        right[(l * kSimtDepth + k) * kLine + line] =
            col0 + line < lane_columns && k0 + k < depth
                ? W::eval(p, first_weight + l * lane_columns + col0 + line, k0 + k).v[0]
                : 0.0f;
    }
    sync_block();
    UNROLL for (int k = 0; k < kSimtDepth; ++k) {
      UNROLL for (int l = 0; l < kLanes; ++l) {
        UNROLL for (int i = 0; i < 4; ++i) {
          UNROLL for (int j = 0; j < 4; ++j) sum[l][i][j] +=
              left[k * kLine + ty + i] * right[(l * kSimtDepth + k) * kLine + tx + j];
        }
      }
    }
    sync_block();
  }
  UNROLL for (int i = 0; i < 4; ++i) {
    UNROLL for (int j = 0; j < 4; j += kRun) {
      if (row0 + ty + i >= m || col0 + tx + j >= lane_columns) continue;
      Frag<float, kRun> acc[kLanes];
      UNROLL for (int l = 0; l < kLanes; ++l) { UNROLL for (int k = 0; k < kRun; ++k) acc[l].v[k] = sum[l][i][j + k]; }
      store_result<Epilogue>(p, first_row + row0 + ty + i, col0 + tx + j, acc);
    }
  }
}

/// Grid: x = columns of a lane / 64, y = rows / 64, z = batch.
template <class X, class W, class Epilogue, class Params>
DEV void gemm_simt(const Params& p) {
  griddep_wait();
  griddep_launch();
  const GemmSizes& s = p.sizes;
  const ProductRows<X, Params> rows{p, block_z() * s.m};
  simt_tile<W, Epilogue>(p, rows, s.m, s.n / Epilogue::kLanes, s.k, block_z() * s.m, block_z() * s.n);
}

template <class X, class W, class Epilogue, class Params>
DEV void conv_simt(const Params& p) {
  griddep_wait();
  griddep_launch();
  const ConvSizes& s = p.sizes;
  const PixelRows<X, Params> rows{p};
  simt_tile<W, Epilogue>(p, rows, s.batch * s.out_height * s.out_width, s.outputs / Epilogue::kLanes,
                         s.channels * s.kernel_h * s.kernel_w, 0, 0);
}

}  // namespace tenon::device
