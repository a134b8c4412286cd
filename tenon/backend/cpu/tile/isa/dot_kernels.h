// Register-blocked matrix kernels over the packed formats, written once for all vector instruction sets. A word is four
// bytes of a row of A, a pair of bf16 or one f32, multiplied by a line of B; a Dot policy says how.
// Included only by the files of one instruction set, after its vec_*.h; internal linkage throughout.
#pragma once
#include <type_traits>

#include "tenon/backend/cpu/tile/tile_ops.h"

namespace tenon::cpu {
namespace {

/// f32 operands: one multiply-add.
struct DotF32 {
  static constexpr int64_t kWordBytes = 64;  ///< of B, per panel and word
  using A = V;
  using B = V;
  static A load_a(const char* p) { return v_repeat(p); }
  static B load_b(const char* p) { return v_load(p); }
  static V add(V acc, A a, B b) { return v_fma(a, b, acc); }
  /// Rows of a register block of `panels` panels.
  static constexpr int rows(int panels) {
    return kRegisters == 32 ? (panels == 4 ? 6 : panels == 3 ? 8 : 12) : panels == 1 ? 6 : 0;
  }
};

/// bf16 pairs without bf16 arithmetic: both halves are widened to f32, even k first.
struct DotWidened {
  static constexpr int64_t kWordBytes = 64;
  struct A {
    V even, odd;
  };
  using B = A;
  static A load_a(const char* p) { return split(v_repeat(p)); }
  static B load_b(const char* p) { return split(v_load(p)); }
  static A split(V x) { return {v_even(x), v_odd(x)}; }
  static V add(V acc, const A& a, const B& b) { return v_fma(a.odd, b.odd, v_fma(a.even, b.even, acc)); }
  static constexpr int rows(int panels) {
    return kRegisters == 32 ? (panels == 4 ? 4 : panels == 3 ? 6 : 8) : panels == 1 ? 4 : 0;
  }
};

/// The same with i8 columns.
struct DotWidenedI8 : DotWidened {
  static constexpr int64_t kWordBytes = 32;
  static B load_b(const char* p) { return {v_from_i8(p), v_from_i8(p + 16)}; }
};

/// f32 rows with f16 columns.
struct DotHalf : DotF32 {
  static constexpr int64_t kWordBytes = 32;
  static B load_b(const char* p) { return v_from_f16(p); }
};

/// Whether columns are fetched early. Measured with AVX2; with AMX it gained nothing.
constexpr bool kFetchesColumns = kRegisters == 16;

/// Fetches `count` lines from `at` on into the L2 cache. Any address will do.
inline void fetch_lines(const char* at, int64_t count) {
  for (int64_t i = 0; i < count; ++i) __builtin_prefetch(at + i * kLine, 0, 2);
}

/// Rows [0, kRows) x panels [0, kPanels) in registers: all of K, then one store.
template <class Dot, int kStride, int kRows, int kPanels>
void block(const TileArgs& t, const char* a, const char* b, float* c) {
  V acc[kRows][kPanels];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < kPanels; ++n) acc[r][n] = t.accumulate ? v_load(c + r * t.ldc + n * kPanel) : v_zero();
  const int64_t b_stride = t.b_stride;
  const auto multiply = [&](const char* at, const char* bt) __attribute__((always_inline)) {
    typename Dot::B bv[kPanels];
#pragma GCC unroll 4
    for (int n = 0; n < kPanels; ++n) {
      bv[n] = Dot::load_b(bt + n * b_stride);
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const typename Dot::A av = Dot::load_a(at + r * kStride);
#pragma GCC unroll 4
      for (int n = 0; n < kPanels; ++n) acc[r][n] = Dot::add(acc[r][n], av, bv[n]);
    }
  };
  for (int64_t i = 0; i < t.terms; ++i, b += 16 * Dot::kWordBytes) {
    const char* at = a + t.a_off[i];
    // The terms of A are pages apart, which no hardware prefetcher follows.
    const char* ahead = a + t.a_off[i + 1 < t.terms ? i + 1 : i];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) __builtin_prefetch(ahead + r * kStride);
    if (t.fetched_lines > 0) fetch_lines(t.fetched + i * 16 * Dot::kWordBytes, t.fetched_lines);
    if (i + 1 == t.terms && t.last != 16) {
      for (int s = 0; s < t.last; ++s) multiply(at + 4 * s, b + Dot::kWordBytes * s);
    } else {
#pragma GCC unroll 2
      for (int s = 0; s < 16; ++s) multiply(at + 4 * s, b + Dot::kWordBytes * s);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < kPanels; ++n) v_store(c + r * t.ldc + n * kPanel, acc[r][n]);
}

/// Blocks of rows kStride_ bytes apart.
template <class Dot, int kStride_>
struct DotBlocks {
  static constexpr int kStride = kStride_;
  static constexpr bool kFewRows = kRegisters == 16;  ///< has blocks of few rows and several panels
  static constexpr bool kFetches = kFetchesColumns;   ///< the next panels
  static constexpr int64_t kTermLines = 16 * Dot::kWordBytes / kLine;
  static constexpr int rows(int panels) { return Dot::rows(panels); }
  template <int kRows, int kPanels>
  static void run(const TileArgs& t, const char* a, const char* b, float* c) {
    block<Dot, kStride, kRows, kPanels>(t, a, b, c);
  }
};

/// Runs the block with exactly `rows` rows, 1 <= rows <= kRows.
template <class Blocks, int kRows, int kPanels>
void block_of(int rows, const TileArgs& t, const char* a, const char* b, float* c) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return block_of<Blocks, kRows - 1, kPanels>(rows, t, a, b, c);
  }
  Blocks::template run<kRows, kPanels>(t, a, b, c);
}

/// All rows of `kPanels` panels, in register blocks of nearly equal height. Each fetches its share of the next panels,
/// unless there are so few blocks that they would wait for it. Others need no copy of the arguments, which would wait
/// until these are in the cache.
template <class Blocks, int kPanels>
void panel_group(const TileArgs& args, int panel) {
  std::conditional_t<Blocks::kFetches, TileArgs, const TileArgs&> t = args;
  constexpr int kRows = Blocks::rows(kPanels);
  const char* a = static_cast<const char*>(t.a);
  const char* b = static_cast<const char*>(t.b) + panel * t.b_stride;
  float* c = t.c + panel * kPanel;
  int blocks = (t.m + kRows - 1) / kRows;
  if constexpr (Blocks::kFetches) {
    t.fetched = b + kPanels * t.b_stride;
    t.fetched_lines = blocks < 4 ? 0 : static_cast<int>(div_up(kPanels * Blocks::kTermLines, blocks));
  }
  for (int row = 0; row < t.m; --blocks) {
    const int rows = (t.m - row + blocks - 1) / blocks;
    block_of<Blocks, kRows, kPanels>(rows, t, a + row * Blocks::kStride, b, c + row * t.ldc);
    if constexpr (Blocks::kFetches) t.fetched += t.fetched_lines * kLine;
    row += rows;
  }
}

/// All rows of as many panels as come in groups of kPanels; returns the number of these panels.
template <class Blocks, int kRows, int kPanels>
int side_by_side(const TileArgs& t) {
  const char* a = static_cast<const char*>(t.a);
  int p = 0;
  for (; p + kPanels <= t.panels; p += kPanels)
    Blocks::template run<kRows, kPanels>(t, a, static_cast<const char*>(t.b) + p * t.b_stride, t.c + p * kPanel);
  return p;
}

template <class Blocks>
void all_panels(const TileArgs& t) {
  if (Blocks::rows(4) == 0 || t.streams) {
    int p = 0;
    if constexpr (Blocks::kFewRows)  // the sums of one or two rows by a panel would wait for each other
      if (!t.streams && t.m <= 2) p = t.m == 1 ? side_by_side<Blocks, 1, 4>(t) : side_by_side<Blocks, 2, 2>(t);
    for (; p < t.panels; ++p) panel_group<Blocks, 1>(t, p);
  } else if constexpr (Blocks::rows(4) != 0) {
    for (int p = 0; p < t.panels;) {
      const int rest = t.panels - p;
      if (rest == 4 || rest >= 6) {
        panel_group<Blocks, 4>(t, p);
        p += 4;
      } else if (rest == 5 || rest == 3) {
        panel_group<Blocks, 3>(t, p);
        p += 3;
      } else if (rest == 2) {
        panel_group<Blocks, 2>(t, p);
        p += 2;
      } else {
        panel_group<Blocks, 1>(t, p);
        p += 1;
      }
    }
  }
}

template <class Dot>
void gemm_tiles(const TileArgs& t) {
  if (t.a_stride == kLine)
    all_panels<DotBlocks<Dot, kLine>>(t);
  else
    all_panels<DotBlocks<Dot, 2 * kLine>>(t);
}

}  // namespace
}  // namespace tenon::cpu
