// The bf16 kernel for matrix tiles, written in terms of tile operations so that the same code runs on AMX and,
// emulated, on any machine (as in tests). A tile is 16 lines of 64 bytes. Tiles 0-3 hold a 2 x 2 block of sums (32 x 32
// outputs), 4 and 5 two tiles of A, 6 and 7 two panels of B.
//
// Both operands may come from the L2 cache, which keeps up with the four products per term.
//
// Operations: T::zero<i>(), T::load<i>(base, stride), T::store<i>(base, stride),
// T::dot<c, a, b>(): tile c += tile a (rows of 16 bf16 pairs) * tile b (16 pairs x 16 columns),
// T::widen(from, to): converts a block of i8, half as long, to bf16.
#pragma once
#include "tenon/backend/cpu/tile/tile_ops.h"

namespace tenon::cpu {
namespace {

// How many i8 terms are widened before the first of them is multiplied: enough for stores to complete before a tile
// loads what they wrote.
constexpr int64_t kTermsWidened = 4;
// How far ahead of widening memory is prefetched.
constexpr int64_t kBytesAhead = 2048;

// A block of up to kRowTiles x kPanels tiles of sums. kI8: B is i8, else bf16.
template <class T, int kRowTiles, int kPanels, bool kI8>
struct AmxBlock {
  const TileArgs& t;
  const char* a;
  const char* b;
  int64_t second = 16;  // row of the second tile; below 16, it repeats rows of the first

  void load_sums(const float* c, int64_t ldc) const {
    T::template load<0>(c, ldc * 4);
    if constexpr (kPanels == 2) T::template load<1>(c + kPanel, ldc * 4);
    if constexpr (kRowTiles == 2) T::template load<2>(c + second * ldc, ldc * 4);
    if constexpr (kRowTiles == 2 && kPanels == 2) T::template load<3>(c + second * ldc + kPanel, ldc * 4);
  }
  void store_sums(float* c, int64_t ldc) const {
    T::template store<0>(c, ldc * 4);
    if constexpr (kPanels == 2) T::template store<1>(c + kPanel, ldc * 4);
    if constexpr (kRowTiles == 2) T::template store<2>(c + second * ldc, ldc * 4);
    if constexpr (kRowTiles == 2 && kPanels == 2) T::template store<3>(c + second * ldc + kPanel, ldc * 4);
  }
  void zero_sums() const {
    T::template zero<0>();
    if constexpr (kPanels == 2) T::template zero<1>();
    if constexpr (kRowTiles == 2) T::template zero<2>();
    if constexpr (kRowTiles == 2 && kPanels == 2) T::template zero<3>();
  }
  // Adds a term. Its block of the first panel is at bt, that of the second panel `b_stride` further on.
  void sum_term(int64_t term, const char* bt, int64_t b_stride) const {
    const char* at = a + t.a_off[term];
    T::template load<6>(bt, kLine);
    T::template load<4>(at, t.a_stride);
    T::template dot<0, 4, 6>();
    if constexpr (kPanels == 2) T::template load<7>(bt + b_stride, kLine);
    if constexpr (kPanels == 2) T::template dot<1, 4, 7>();
    if constexpr (kRowTiles == 2) T::template load<5>(at + second * t.a_stride, t.a_stride);
    if constexpr (kRowTiles == 2) T::template dot<2, 5, 6>();
    if constexpr (kRowTiles == 2 && kPanels == 2) T::template dot<3, 5, 7>();
  }
  void sum_terms() const {
    for (int64_t i = 0; i < t.terms; ++i) sum_term(i, b + i * kBlock, t.b_stride);
  }
  void sum_terms_of_i8() const {
    alignas(64) char wide[kPanels][kTermsWidened * kBlock];
    constexpr int64_t kBytes = kBlock / 2;
    for (int64_t i = 0; i < t.terms; i += kTermsWidened) {
      const int64_t terms = t.terms - i < kTermsWidened ? t.terms - i : kTermsWidened;
      for (int panel = 0; panel < kPanels; ++panel)
        for (int64_t j = 0; j < terms; ++j) {
          const char* from = b + panel * t.b_stride + (i + j) * kBytes;
          for (int64_t line = 0; line < kBytes; line += kLine) __builtin_prefetch(from + kBytesAhead + line);
          T::widen(from, wide[panel] + j * kBlock);
        }
      for (int64_t j = 0; j < terms; ++j) sum_term(i + j, wide[0] + j * kBlock, kTermsWidened * kBlock);
    }
  }
  void run(float* c, int64_t ldc) const {
    if (t.accumulate)
      load_sums(c, ldc);
    else
      zero_sums();
    if constexpr (kI8)
      sum_terms_of_i8();
    else
      sum_terms();
    store_sums(c, ldc);
  }
  // Only `rows` of the tile's 16 rows, after the first `before`; their sums are at c, and no others may be touched.
  void run_some(float* c, int before, int rows) const {
    constexpr int64_t kLd = kPanels * kPanel;
    alignas(64) float edge[16 * kLd];
    float* some = edge + before * kLd;
    if (t.accumulate) {
      __builtin_memset(edge, 0, sizeof(edge));
      for (int r = 0; r < rows; ++r) __builtin_memcpy(some + r * kLd, c + r * t.ldc, kLd * sizeof(float));
    }
    run(edge, kLd);
    for (int r = 0; r < rows; ++r) __builtin_memcpy(c + r * t.ldc, some + r * kLd, kLd * sizeof(float));
  }
};

template <class T, int kPanels, bool kI8>
void amx_panels(const TileArgs& t, int panel) {
  const char* a = static_cast<const char*>(t.a);
  const char* b = static_cast<const char*>(t.b) + panel * t.b_stride;
  float* c = t.c + panel * kPanel;
  for (int row = 0; row < t.m; row += 32) {
    const int rows = t.m - row < 32 ? t.m - row : 32;
    const char* at = a + row * t.a_stride;
    float* ct = c + row * t.ldc;
    if (rows > 16) {
      AmxBlock<T, 2, kPanels, kI8>{t, at, b, rows - 16}.run(ct, t.ldc);
    } else if (rows == 16) {
      AmxBlock<T, 1, kPanels, kI8>{t, at, b}.run(ct, t.ldc);
    } else {
      const int before = row > 0 ? 16 - rows : 0;
      AmxBlock<T, 1, kPanels, kI8>{t, at - before * t.a_stride, b}.run_some(ct, before, rows);
    }
  }
}

template <class T, bool kI8 = false>
void amx_gemm(const TileArgs& t) {
  int p = 0;
  for (; p + 2 <= t.panels; p += 2) amx_panels<T, 2, kI8>(t, p);
  if (p < t.panels) amx_panels<T, 1, kI8>(t, p);
}

}  // namespace
}  // namespace tenon::cpu
