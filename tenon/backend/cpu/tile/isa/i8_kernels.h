// Products of i8 in blocks, written once for all vector instruction sets: integers are summed over a term, then scaled
// and added in f32. Included only by the files of one instruction set, after its vec_*.h.
#pragma once
#include "tenon/backend/cpu/tile/isa/widened_kernels.h"

namespace tenon::cpu {
namespace {

/// Four products per lane without an instruction for them: even and odd bytes separately, as 16-bit integers, whose
/// pairs are multiplied and added exactly. (Multiplying the bytes directly would saturate.)
struct DotI16 {
  struct A {
    I even, odd;
  };
  using B = A;
  static A load_a(const void* p) {
    const I x = i_repeat(p);
    return {i_low_signed(x), i_high_signed(x)};
  }
  static B load_b(const void* p) {
    const I x = i_load(p);
    return {i_low_bytes(x), i_high_bytes(x)};
  }
  static I add(I acc, const A& a, const B& b) {
    return i_add(acc, i_add(i_pair_sums(a.even, b.even), i_pair_sums(a.odd, b.odd)));
  }
  static constexpr int rows(int panels) { return kRegisters == 32 ? (panels == 4 ? 1 : 4) : panels == 1 ? 2 : 0; }
};

/// Rows [0, kRows) x panels [0, kPanels) in registers, all of K.
template <class Dot, int kRows, int kPanels>
void i8_block(const TileArgs& t, const char* a, const char* b, float* c) {
  V acc[kRows][kPanels];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < kPanels; ++n) acc[r][n] = t.accumulate ? v_load(c + r * t.ldc + n * kPanel) : v_zero();
  const int64_t b_stride = t.b_stride;
  for (int64_t i = 0; i < t.terms; ++i, b += sizeof(I8Term)) {
    const char* at = a + t.a_off[i];
    I sum[kRows][kPanels];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int n = 0; n < kPanels; ++n) sum[r][n] = i_repeat(at + r * kLine + offsetof(I8Line, correction));
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) {
      const char* bt = b + offsetof(I8Term, q) + s * kLine;
      typename Dot::B bv[kPanels];
#pragma GCC unroll 4
      for (int n = 0; n < kPanels; ++n) {
        bv[n] = Dot::load_b(bt + n * b_stride);
      }
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const typename Dot::A av = Dot::load_a(at + r * kLine + 4 * s);
#pragma GCC unroll 4
        for (int n = 0; n < kPanels; ++n) sum[r][n] = Dot::add(sum[r][n], av, bv[n]);
      }
    }
#pragma GCC unroll 4
    for (int n = 0; n < kPanels; ++n) {
      const V scale = v_from_f16(b + n * b_stride);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const V row = v_repeat(at + r * kLine + offsetof(I8Line, scale));
        acc[r][n] = v_fma(v_mul(v_from_i32(sum[r][n]), row), scale, acc[r][n]);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < kPanels; ++n) v_store(c + r * t.ldc + n * kPanel, acc[r][n]);
}

template <class Dot>
struct I8Blocks {
  static constexpr int kStride = kLine;
  static constexpr bool kFetches = false;
  static constexpr int rows(int panels) { return Dot::rows(panels); }
  template <int kRows, int kPanels>
  static void run(const TileArgs& t, const char* a, const char* b, float* c) {
    i8_block<Dot, kRows, kPanels>(t, a, b, c);
  }
};

/// With few rows, as many columns at once as registers allow; with more rows, the rows share what is read of the
/// columns.
template <class Dot>
void i8_tiles(const TileArgs& t) {
  if constexpr (std::is_same_v<Dot, DotI16>)
    if (t.m >= kMinWidenedRows) return widened_tiles<I8AsI16>(t);
  int p = 0;
  if constexpr (Dot::rows(4) > 0) {
    if (t.streams)
      for (; p < t.panels; ++p) panel_group<I8Blocks<Dot>, 1>(t, p);
    if (t.m <= Dot::rows(4))
      for (; p + 4 <= t.panels; p += 4) panel_group<I8Blocks<Dot>, 4>(t, p);
    for (; p + 2 <= t.panels; p += 2) panel_group<I8Blocks<Dot>, 2>(t, p);
  }
  for (; p < t.panels; ++p) panel_group<I8Blocks<Dot>, 1>(t, p);
}

}  // namespace
}  // namespace tenon::cpu
