// Products of i8 in blocks, written once for all vector instruction sets: integers are summed over a term, then scaled
// and added in f32. Included only by the files of one instruction set, after its vec_*.h.
#pragma once
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tenon/backend/cpu/tile/isa/dot_kernels.h"

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
  static I step(I acc, const A& a, const B& b) {
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
        for (int n = 0; n < kPanels; ++n) sum[r][n] = Dot::step(sum[r][n], av, bv[n]);
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
  static constexpr int rows(int panels) { return Dot::rows(panels); }
  template <int kRows, int kPanels>
  static void run(const TileArgs& t, const char* a, const char* b, float* c) {
    i8_block<Dot, kRows, kPanels>(t, a, b, c);
  }
};

// ---- many rows without an instruction for four products ------------------------------------------------------------

/// An I8Line, and an I8Term, widened to pairs of 16-bit integers: the even bytes of each group of four, then the odd
/// ones.
struct I16Line {
  int32_t even[8], odd[8];
  float scale;
  int32_t correction, unused[6];
};
struct I16Term {
  uint16_t scale[kPanel];
  int32_t q[16][kPanel];
};
constexpr int64_t kWideTerms = 4;  // widened at a time: rows and a panel stay in the L1 cache
constexpr int kWideRows = 64;      // most rows widened at a time
constexpr int kFewestWideRows = 8;

void widen_line(const char* from, I16Line& to) {
  const I x = i_load(from);
  i_store(to.even, i_low_signed(x));  // the upper half of the line is no data: odd overwrites it here
  i_store(to.odd, i_high_signed(x));  // .. and the scale there
  std::memcpy(&to.scale, from + offsetof(I8Line, scale), 2 * sizeof(float));
}

void widen_term(const char* from, I16Term& to) {
  std::memcpy(to.scale, from + offsetof(I8Term, scale), sizeof(to.scale));
#pragma GCC unroll 8
  for (int s = 0; s < 8; ++s) {
    const I x = i_load(from + offsetof(I8Term, q) + s * kLine);
    i_store(to.q[s], i_low_bytes(x));
    i_store(to.q[8 + s], i_high_bytes(x));
  }
}

/// Rows of widened lines by one widened panel. The sums of a term stay in registers, those of all terms in C.
struct I16Blocks {
  static constexpr int64_t kStride = kWideTerms * sizeof(I16Line);
  static constexpr int rows(int) { return kRegisters == 32 ? 8 : 6; }
  template <int kRows, int kPanels>
  static void run(const TileArgs& t, const char* a, const char* b, float* c) {
    for (int64_t i = 0; i < t.terms; ++i, a += sizeof(I16Line), b += sizeof(I16Term)) {
      I sum[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sum[r] = i_repeat(a + r * kStride + offsetof(I16Line, correction));
#pragma GCC unroll 4
      for (int s = 0; s < 16; ++s) {
        const I columns = i_load(b + offsetof(I16Term, q) + s * kLine);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sum[r] = i_add(sum[r], i_pair_sums(i_repeat(a + r * kStride + 4 * s), columns));
      }
      const V scale = v_from_f16(b);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const V row = v_repeat(a + r * kStride + offsetof(I16Line, scale));
        const V before = i > 0 || t.accumulate ? v_load(c + r * t.ldc) : v_zero();
        v_store(c + r * t.ldc, v_fma(v_mul(v_from_i32(sum[r]), row), scale, before));
      }
    }
  }
};

/// The same sums as i8_block's, since integers are exact.
void i16_tiles(const TileArgs& t) {
  I16Line lines[kWideRows][kWideTerms];
  I16Term terms[kWideTerms];
  for (int row = 0; row < t.m; row += kWideRows)
    for (int64_t term = 0; term < t.terms; term += kWideTerms) {
      TileArgs part = t;
      part.m = std::min(kWideRows, t.m - row);
      part.terms = std::min(kWideTerms, t.terms - term);
      part.accumulate = t.accumulate || term > 0;
      part.a = lines;
      part.b = terms;
      for (int r = 0; r < part.m; ++r)
        for (int64_t i = 0; i < part.terms; ++i)
          widen_line(static_cast<const char*>(t.a) + t.a_off[term + i] + (row + r) * kLine, lines[r][i]);
      for (int p = 0; p < t.panels; ++p) {
        const char* from = static_cast<const char*>(t.b) + p * t.b_stride + term * int64_t{sizeof(I8Term)};
        for (int64_t i = 0; i < part.terms; ++i) widen_term(from + i * int64_t{sizeof(I8Term)}, terms[i]);
        part.c = t.c + row * t.ldc + p * kPanel;
        panel_group<I16Blocks, 1>(part, 0);
      }
    }
}

/// With few rows, as many columns at once as registers allow; with more rows, the rows share what is read of the
/// columns.
template <class Dot>
void i8_tiles(const TileArgs& t) {
  if constexpr (std::is_same_v<Dot, DotI16>)
    if (t.m >= kFewestWideRows) return i16_tiles(t);
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
