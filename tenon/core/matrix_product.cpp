#include "tenon/core/matrix_product.h"

#include <algorithm>
#include <cstring>

#include "tenon/core/beside.h"

namespace tenon {
namespace {

// One block: R x C dot products over `depth` elements, accumulated in registers, then added to out.
template <class V, int R, int C>
[[gnu::always_inline]] inline void tile(const double* a, int64_t lda, const double* b, int64_t ldb, int64_t depth,
                                        double* out, int64_t ldo) {
  constexpr int64_t kLanes = sizeof(V) / sizeof(double);
  V sum[R][C] = {};
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    V x[R], y[C];
    for (int r = 0; r < R; ++r) std::memcpy(&x[r], a + r * lda + k, sizeof(V));
    for (int c = 0; c < C; ++c) std::memcpy(&y[c], b + c * ldb + k, sizeof(V));
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < C; ++c) sum[r][c] += x[r] * y[c];
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) {
      double total = 0;
      for (int i = 0; i < kLanes; ++i) total += sum[r][c][i];
      for (int64_t t = k; t < depth; ++t) total += a[r * lda + t] * b[c * ldb + t];
      out[r * ldo + c] += total;
    }
}

// Blocks of rows and depth stay in the L2 cache while all of b streams past.
template <class V, int R, int C>
[[gnu::always_inline]] inline void multiply_rows(const MatrixView& a, const MatrixView& b, double* out, int64_t ldo) {
  constexpr int64_t kRows = 64, kDepth = 512;
  for (int64_t i = 0; i < a.rows; ++i) std::fill_n(out + i * ldo, b.rows, 0.0);
  for (int64_t k = 0; k < a.cols; k += kDepth) {
    const int64_t depth = std::min(kDepth, a.cols - k);
    for (int64_t i0 = 0; i0 < a.rows; i0 += kRows) {
      const int64_t i1 = std::min(a.rows, i0 + kRows);
      for (int64_t j0 = 0; j0 < b.rows; j0 += C)
        for (int64_t i = i0; i < i1; i += R) {
          const double *x = a.data + i * a.stride + k, *y = b.data + j0 * b.stride + k;
          double* z = out + i * ldo + j0;
          if (i + R <= i1 && j0 + C <= b.rows) {
            tile<V, R, C>(x, a.stride, y, b.stride, depth, z, ldo);
            continue;
          }
          for (int64_t r = 0; r < std::min<int64_t>(R, i1 - i); ++r)
            for (int64_t c = 0; c < std::min<int64_t>(C, b.rows - j0); ++c)
              tile<V, 1, 1>(x + r * a.stride, 0, y + c * b.stride, 0, depth, z + r * ldo + c, 0);
        }
    }
  }
}

template <int kBytes>
struct Vector {
  typedef double type __attribute__((vector_size(kBytes)));
};

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void rows_avx512(const MatrixView& a, const MatrixView& b, double* out,
                                                    int64_t ldo) {
  multiply_rows<Vector<64>::type, 4, 4>(a, b, out, ldo);
}
__attribute__((target("avx2,fma"))) void rows_avx2(const MatrixView& a, const MatrixView& b, double* out, int64_t ldo) {
  multiply_rows<Vector<32>::type, 4, 2>(a, b, out, ldo);
}
#endif
void rows_plain(const MatrixView& a, const MatrixView& b, double* out, int64_t ldo) {
  multiply_rows<Vector<16>::type, 4, 2>(a, b, out, ldo);
}

auto best_rows() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return &rows_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &rows_avx2;
#endif
  return &rows_plain;
}

}  // namespace

void multiply_transposed(const MatrixView& a, const MatrixView& b, double* out, int64_t out_stride) {
  constexpr double kWorthAThread = 5e7;
  const auto rows = best_rows();
  const double work = static_cast<double>(a.rows) * static_cast<double>(b.rows) * static_cast<double>(a.cols);
  if (work < kWorthAThread || a.rows < 2) return rows(a, b, out, out_stride);
  const int64_t half = a.rows / 2;
  MatrixView upper = a, lower = a;
  upper.rows = half;
  lower.rows = a.rows - half;
  lower.data += half * a.stride;
  run_beside([&] { rows(upper, b, out, out_stride); }, [&] { rows(lower, b, out + half * out_stride, out_stride); });
}

}  // namespace tenon
