// Products of many rows whose elements have to be widened first: both operands are widened once, some terms at a time,
// not for every product. The sums are those of the kernels that widen as they multiply, bit for bit. Included only by
// the files of one instruction set, after its vec_*.h.
#pragma once
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tenon/backend/cpu/tile/isa/dot_kernels.h"

namespace tenon::cpu {
namespace {

constexpr int kMaxWidenedRows = 64;  ///< most rows widened at a time
constexpr int kMinWidenedRows = 8;   ///< with fewer rows, widening costs more than it saves

/// i8 in blocks, in pairs of 16-bit integers: the even bytes of each group of four, then the odd ones.
struct I8AsI16 {
  struct Line {
    int32_t even[8], odd[8];
    float scale;
    int32_t correction, unused[6];
  };
  struct Term {
    uint16_t scale[kPanel];
    int32_t q[16][kPanel];
  };
  static constexpr int64_t kTermBytes = sizeof(I8Term);
  static constexpr int64_t kTerms = 4;  ///< widened at a time, so that rows and a panel stay in the L1 cache
  static constexpr int64_t kStride = kTerms * sizeof(Line);
  static constexpr bool kFewRows = false, kFetches = false;
  static constexpr int rows(int panels) {
    return panels > 1 ? 0 : kRegisters == 32 ? 8 : 4;  // with six, compilers keep sums in memory
  }

  static void widen(const char* from, Line& to) {
    const I x = i_load(from);
    i_store(to.even, i_low_signed(x));  // the upper half of the line is no data: odd overwrites it here
    i_store(to.odd, i_high_signed(x));  // .. and the scale there
    std::memcpy(&to.scale, from + offsetof(I8Line, scale), 2 * sizeof(float));
  }
  static void widen(const char* from, Term& to) {
    std::memcpy(to.scale, from + offsetof(I8Term, scale), sizeof(to.scale));
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) {
      const I x = i_load(from + offsetof(I8Term, q) + s * kLine);
      i_store(to.q[s], i_low_bytes(x));
      i_store(to.q[8 + s], i_high_bytes(x));
    }
  }

  /// Sums of one term stay in registers, those of all terms in C.
  template <int kRows, int kPanels>
  static void run(const TileArgs& t, const char* a, const char* b, float* c) {
    for (int64_t i = 0; i < t.terms; ++i, a += sizeof(Line), b += sizeof(Term)) {
      I sum[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sum[r] = i_repeat(a + r * kStride + offsetof(Line, correction));
#pragma GCC unroll 4
      for (int s = 0; s < 16; ++s) {
        const I columns = i_load(b + offsetof(Term, q) + s * kLine);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sum[r] = i_add(sum[r], i_pair_sums(i_repeat(a + r * kStride + 4 * s), columns));
      }
      const V scale = v_from_f16(b);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const V row = v_repeat(a + r * kStride + offsetof(Line, scale));
        const V before = i > 0 || t.accumulate ? v_load(c + r * t.ldc) : v_zero();
        v_store(c + r * t.ldc, v_fma(v_mul(v_from_i32(sum[r]), row), scale, before));
      }
    }
  }
};

/// bf16 pairs as f32: the even elements of a line, then the odd ones.
struct Bf16AsF32 {
  struct Line {
    float even[16], odd[16];
  };
  struct Term {
    float even[16][kPanel], odd[16][kPanel];
  };
  static constexpr int64_t kTermBytes = kBlock;
  static constexpr int64_t kTerms = 2;
  static constexpr int64_t kStride = kTerms * sizeof(Line);
  static constexpr bool kFewRows = false, kFetches = false;
  static constexpr int rows(int panels) { return DotF32::rows(panels); }

  static void widen(const char* from, Line& to) {
    const V x = v_load(from);
    v_store(to.even, v_even(x));
    v_store(to.odd, v_odd(x));
  }
  static void widen(const char* from, Term& to) {
#pragma GCC unroll 4
    for (int s = 0; s < 16; ++s) {
      const V x = v_load(from + s * kLine);
      v_store(to.even[s], v_even(x));
      v_store(to.odd[s], v_odd(x));
    }
  }

  /// Not inlined: among the code around it, GCC keeps a sum of six rows in memory, and every product waits for its
  /// store.
  template <int kRows, int kPanels>
  [[gnu::noinline]] static void run(const TileArgs& t, const char* a, const char* b, float* c) {
    V acc[kRows][kPanels];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int n = 0; n < kPanels; ++n) acc[r][n] = t.accumulate ? v_load(c + r * t.ldc + n * kPanel) : v_zero();
    const auto multiply = [&](const char* rows, const char* columns) __attribute__((always_inline)) {
      V x[kPanels];
#pragma GCC unroll 4
      for (int n = 0; n < kPanels; ++n) x[n] = v_load(columns + n * kTerms * sizeof(Term));
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const V row = v_repeat(rows + r * kStride);
#pragma GCC unroll 4
        for (int n = 0; n < kPanels; ++n) acc[r][n] = v_fma(row, x[n], acc[r][n]);
      }
    };
    for (int64_t i = 0; i < t.terms; ++i, a += sizeof(Line), b += sizeof(Term)) {
      const int words = i + 1 == t.terms ? t.last : 16;
#pragma GCC unroll 2
      for (int s = 0; s < words; ++s) {
        multiply(a + offsetof(Line, even) + 4 * s, b + offsetof(Term, even) + s * kLine);
        multiply(a + offsetof(Line, odd) + 4 * s, b + offsetof(Term, odd) + s * kLine);
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int n = 0; n < kPanels; ++n) v_store(c + r * t.ldc + n * kPanel, acc[r][n]);
  }
};

template <class Wide>
void widened_tiles(const TileArgs& t) {
  alignas(64) typename Wide::Line lines[kMaxWidenedRows][Wide::kTerms];
  constexpr int kWidth = Wide::rows(4) ? 4 : 1;  // panels side by side
  alignas(64) typename Wide::Term terms[kWidth][Wide::kTerms];
  for (int row = 0; row < t.m; row += kMaxWidenedRows)
    for (int64_t term = 0; term < t.terms; term += Wide::kTerms) {
      TileArgs part = t;
      part.m = std::min(kMaxWidenedRows, t.m - row);
      part.terms = std::min(Wide::kTerms, t.terms - term);
      part.accumulate = t.accumulate || term > 0;
      part.last = term + part.terms == t.terms ? t.last : 16;
      part.a = lines;
      part.b = terms;
      part.b_stride = sizeof(terms[0]);
      for (int r = 0; r < part.m; ++r)
        for (int64_t i = 0; i < part.terms; ++i)
          Wide::widen(static_cast<const char*>(t.a) + t.a_off[term + i] + (row + r) * t.a_stride, lines[r][i]);
      for (int p = 0; p < t.panels; p += kWidth) {
        part.panels = std::min(kWidth, t.panels - p);
        const char* from = static_cast<const char*>(t.b) + p * t.b_stride + term * Wide::kTermBytes;
        for (int n = 0; n < part.panels; ++n)
          for (int64_t i = 0; i < part.terms; ++i)
            Wide::widen(from + n * t.b_stride + i * Wide::kTermBytes, terms[n][i]);
        if constexpr (kFetchesColumns)
          for (int n = 0; n < part.panels; ++n)
            fetch_lines(from + n * t.b_stride + Wide::kTerms * Wide::kTermBytes,
                        div_up(Wide::kTerms * Wide::kTermBytes, kLine));
        part.c = t.c + row * t.ldc + p * kPanel;
        all_panels<Wide>(part);
      }
    }
}

template <class Dot>
void bf16_tiles(const TileArgs& t) {
  if constexpr (std::is_same_v<Dot, DotWidened>)
    if (t.m >= kMinWidenedRows) return widened_tiles<Bf16AsF32>(t);
  gemm_tiles<Dot>(t);
}

}  // namespace
}  // namespace tenon::cpu
