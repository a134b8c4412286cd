// The input and output transforms of Winograd F(4x4, 3x3), sixteen channels at a time; the points are 0, +-a, +-b and
// infinity with a = sqrt(1/2), b = sqrt(2) (winograd.h). Included only by the files of one instruction set.
#pragma once
#include "tenon/backend/cpu/tile/tile_ops.h"

namespace tenon::cpu {
namespace {

constexpr float kPointA = 0.70710678f, kPointB = 1.41421356f;  // a^2 = 1/2, b^2 = 2, a^2 b^2 = 1, a^2 + b^2 = 5/2

/// y = B^T x for six values, with strides kFrom and kTo.
template <int kFrom, int kTo>
inline void transform_in(const V* x, V* y) {
  const V x1 = x[kFrom], x2 = x[2 * kFrom], x3 = x[3 * kFrom], x4 = x[4 * kFrom], w = v_set1(-2.5f);
  const V even_a = v_fma(v_set1(-2.0f), x2, x4), odd_a = v_mul(v_set1(kPointA), v_fma(v_set1(-2.0f), x1, x3));
  const V even_b = v_fma(v_set1(-0.5f), x2, x4), odd_b = v_mul(v_set1(kPointB), v_fma(v_set1(-0.5f), x1, x3));
  y[0] = v_fma(w, x2, v_add(x[0], x4));
  y[kTo] = v_add(even_a, odd_a);
  y[2 * kTo] = v_sub(even_a, odd_a);
  y[3 * kTo] = v_add(even_b, odd_b);
  y[4 * kTo] = v_sub(even_b, odd_b);
  y[5 * kTo] = v_fma(w, x3, v_add(x1, x[5 * kFrom]));
}

/// y = A^T m: four results from six values.
template <int kFrom, int kTo>
inline void transform_out(const V* m, V* y) {
  const V sum_a = v_add(m[kFrom], m[2 * kFrom]), diff_a = v_sub(m[kFrom], m[2 * kFrom]);
  const V sum_b = v_add(m[3 * kFrom], m[4 * kFrom]), diff_b = v_sub(m[3 * kFrom], m[4 * kFrom]);
  y[0] = v_add(m[0], v_add(sum_a, sum_b));
  y[kTo] = v_fma(v_set1(kPointA), diff_a, v_mul(v_set1(kPointB), diff_b));
  y[2 * kTo] = v_fma(v_set1(0.5f), sum_a, v_mul(v_set1(2.0f), sum_b));
  y[3 * kTo] = v_fma(v_set1(kPointA * 0.5f), diff_a, v_fma(v_set1(kPointB * 2.0f), diff_b, m[5 * kFrom]));
}

void winograd_input(const WinogradInputArgs& t) {
  V d[36], half[36];
  for (int64_t term = 0; term < t.terms; ++term)
    for (int tile = 0; tile < t.tiles; ++tile) {
      for (int y = 0; y < 6; ++y) {
        const float* src = t.rows[y] + 4 * tile * t.ld + 16 * term;
        for (int x = 0; x < 6; ++x) d[6 * y + x] = v_load(src + x * t.ld);
      }
      for (int x = 0; x < 6; ++x) transform_in<6, 6>(d + x, half + x);
      char* dst = static_cast<char*>(t.dst) + term * t.term_stride + tile * kLine;
      for (int y = 0; y < 6; ++y, dst += 6 * t.point_stride) {
        V row[6];
        transform_in<1, 1>(half + 6 * y, row);
        for (int x = 0; x < 6; ++x) v_store(dst + x * t.point_stride, row[x]);
      }
    }
}

void winograd_output(const WinogradOutputArgs& t) {
  const V scale = v_set1(t.scale);
  V m[36], half[24];
  for (int tile = 0; tile < t.tiles; ++tile)
    for (int col = 0; col < t.cols; col += 16) {
      const float* src = t.m + tile * t.ld + col;
      for (int i = 0; i < 36; ++i) m[i] = v_load(src + i * t.point_stride);
      for (int x = 0; x < 6; ++x) transform_out<6, 6>(m + x, half + x);
      for (int y = 0; y < 4; ++y) {
        V row[4];
        transform_out<1, 1>(half + 6 * y, row);
        float* dst = t.out + y * t.row_ld + 4 * tile * t.ld + col;
        for (int x = 0; x < 4; ++x) v_store(dst + x * t.ld, v_mul(row[x], scale));
      }
    }
}

}  // namespace
}  // namespace tenon::cpu
