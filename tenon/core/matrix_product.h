// Products of fp64 matrices, for references, just fast enough for production sizes.
#pragma once
#include <cstdint>

namespace tenon {

/// A row-major fp64 matrix whose rows start `stride` elements apart.
struct MatrixView {
  const double* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
};

/// out[i * out_stride + j] = sum over k of a[i, k] * b[j, k], in a fixed order; a.cols == b.cols. Uses up to two
/// threads.
void multiply_transposed(const MatrixView& a, const MatrixView& b, double* out, int64_t out_stride);

}  // namespace tenon
