// Packing, conversion and softmax, written once for all vector instruction sets. Included only by the files of one
// instruction set, after its vec_*.h; internal linkage throughout.
#pragma once
#include "tenon/backend/cpu/tile/tile_ops.h"

namespace tenon::cpu {
namespace {

template <DType kType>
constexpr int64_t kBytes = kType == DType::F32    ? 4
                           : kType == DType::E4M3 ? 1
                                                  : 2;

template <DType kType>
inline V load16(const char* p) {
  if constexpr (kType == DType::F32) return v_load(p);
  if constexpr (kType == DType::BF16) return v_from_bf16(p);
  if constexpr (kType == DType::F16) return v_from_f16(p);
  if constexpr (kType == DType::E4M3) return v_from_e4m3(p);
}

template <DType kType>
inline void store16(char* p, V x) {
  if constexpr (kType == DType::F32) v_store(p, x);
  if constexpr (kType == DType::BF16) v_to_bf16(p, x);
  if constexpr (kType == DType::F16) v_to_f16(p, x);
}

/// Two vectors of 16 elements: one line of bf16, or two lines of f32.
template <DType kTo>
inline void store_line(char* p, char* q, V a, V b) {
  store16<kTo>(p, a);
  store16<kTo>(q, b);
}

/// The first n of `whole` bytes at p (n may exceed them, or be 0 or less), followed by zeros: p itself or a copy.
inline const char* first_bytes(const char* p, int64_t n, int64_t whole, char* copy) {
  if (n >= whole) return p;
  __builtin_memset(copy, 0, static_cast<size_t>(whole));
  if (n > 0) __builtin_memcpy(copy, p, static_cast<size_t>(n));
  return copy;
}

/// The first n of 16 elements at p, as first_bytes.
template <DType kType>
inline V load_first(const char* p, int64_t n) {
  alignas(64) char copy[64];
  return load16<kType>(first_bytes(p, n * kBytes<kType>, 16 * kBytes<kType>, copy));
}

/// A line of up to 32 numbers as a block of i8, with the results of round_i8_block and an f32 scale.
template <DType kType>
inline void i8_line(const char* p, int64_t n, char* dst) {
  const V x = load_first<kType>(p, n), y = load_first<kType>(p + 16 * kBytes<kType>, n - 16);
  const float largest = v_largest_of(x, y), scale = largest < 0x1p-100f ? 0.0f : largest / 127.0f;
  const V inverse = v_set1(scale > 0 && scale < __builtin_inff() ? 1.0f / scale : 0.0f);
  I8Line& line = *reinterpret_cast<I8Line*>(dst);
  line.scale = scale;
  // With NaN in the line, the sum is arbitrary (it overflows), but the scale makes everything NaN.
  const auto first = static_cast<unsigned>(v_to_i8(line.q, v_mul(x, inverse)));
  const auto second = static_cast<unsigned>(v_to_i8(line.q + 16, v_mul(y, inverse)));
  line.correction = static_cast<int>(-128u * (first + second));
}

/// One line of a packed operand from the first n elements at p.
template <DType kFrom, DType kTo>
inline void line(const char* p, int64_t n, char* dst) {
  if constexpr (kTo == DType::I8) return i8_line<kFrom>(p, n, dst);
  if constexpr (kFrom == DType::E4M3 && kTo == DType::BF16) {
    alignas(64) char copy[32];
    return v_e4m3_to_bf16(first_bytes(p, n, 32, copy), dst);
  }
  store16<kTo>(dst, load_first<kFrom>(p, n));
  if constexpr (kTo == DType::BF16) store16<kTo>(dst + 32, load_first<kFrom>(p + 16 * kBytes<kFrom>, n - 16));
}

/// Calls f.run<type> for the DType t, one of f32, bf16, f16 and e4m3.
template <class F>
inline void with_type(DType t, const F& f) {
  if (t == DType::F32) f.template run<DType::F32>();
  if (t == DType::BF16) f.template run<DType::BF16>();
  if (t == DType::F16) f.template run<DType::F16>();
  if (t == DType::E4M3) f.template run<DType::E4M3>();
}

struct PackRows {
  const PackRowsArgs& t;
  template <DType kFrom>
  void run() const {
    if (t.dst_type == DType::F32) to<kFrom, DType::F32>();
    if (t.dst_type == DType::BF16) to<kFrom, DType::BF16>();
    if (t.dst_type == DType::I8) to<kFrom, DType::I8>();
  }
  template <DType kFrom, DType kTo>
  void to() const {
    constexpr int64_t kElements = term_elements(kTo);
    for (int64_t r = 0; r < t.rows; ++r) {
      const char* src = static_cast<const char*>(t.src) + r * t.ld * kBytes<kFrom>;
      char* dst = static_cast<char*>(t.dst) + r * t.row_stride;
      int64_t k = 0;
      for (; k + kElements <= t.k; k += kElements, dst += t.term_stride)
        line<kFrom, kTo>(src + k * kBytes<kFrom>, kElements, dst);
      if (k < t.k) line<kFrom, kTo>(src + k * kBytes<kFrom>, t.k - k, dst);
    }
  }
};
void pack_rows(const PackRowsArgs& t) { with_type(t.src_type, PackRows{t}); }

struct PackPanel {
  const PackPanelArgs& t;
  template <DType kFrom>
  void run() const {
    t.dst_type == DType::BF16 ? to<kFrom, DType::BF16>() : to<kFrom, DType::F32>();
  }
  // Whole terms of 16 rows that already have the packed type are transposed directly.
  template <DType kType>
  int64_t turn() const {
    if (t.cols != kPanel) return 0;
    const char* src = static_cast<const char*>(t.src);
    const int64_t ld = t.ld * kBytes<kType>, bytes = t.k_size * kBytes<kType> / kLine * kLine;
    for (int64_t at = 0; at < bytes; at += kLine) transpose16(src + at, ld, static_cast<char*>(t.dst) + at * kPanel);
    return bytes / kBytes<kType>;
  }
  // Four terms at a time, so that each access to a row reads whole cache lines.
  template <DType kFrom, DType kTo>
  void to() const {
    constexpr int64_t kElements = kTo == DType::BF16 ? 32 : 16;
    constexpr int64_t kGroup = 4;
    int64_t k = 0;
    if constexpr (kFrom == kTo) k = turn<kTo>();
    if (k == t.k_size) return;
    alignas(64) char lines[kGroup][kBlock] = {};
    char* dst = static_cast<char*>(t.dst) + k / kElements * kBlock;
    for (; k < t.k_size; k += kGroup * kElements) {
      const int64_t rest = t.k_size - k,
                    terms = rest >= kGroup * kElements ? kGroup : (rest + kElements - 1) / kElements;
      for (int c = 0; c < t.cols; ++c) {
        const char* src = static_cast<const char*>(t.src) + (c * t.ld + k) * kBytes<kFrom>;
        for (int64_t at = 0; at < kGroup * kElements * kBytes<kFrom>; at += kLine)
          __builtin_prefetch(src + kGroup * kElements * kBytes<kFrom> + at);
        for (int64_t j = 0; j < terms; ++j)
          line<kFrom, kTo>(src + j * kElements * kBytes<kFrom>, rest - j * kElements, lines[j] + c * kLine);
      }
      for (int64_t j = 0; j < terms; ++j, dst += kBlock) transpose16(lines[j], kLine, dst);
    }
  }
};
void pack_panel(const PackPanelArgs& t) { with_type(t.src_type, PackPanel{t}); }

struct PackColumns {
  const PackColumnsArgs& t;
  template <DType kFrom>
  void run() const {
    t.dst_type == DType::BF16 ? to<kFrom, DType::BF16>() : to<kFrom, DType::F32>();
  }
  // 16 elements of row k, from column n on; zeros beyond the source. `copy`: 64 bytes.
  template <DType kFrom>
  const char* row(int64_t k, int64_t n, char* copy) const {
    const char* p = static_cast<const char*>(t.src) + (k * t.ld + n) * kBytes<kFrom>;
    const int64_t count = k < t.k_rows ? t.cols - n : 0;
    return first_bytes(p, count * kBytes<kFrom>, 16 * kBytes<kFrom>, copy);
  }
  template <DType kFrom, DType kTo>
  void line(int64_t k, int64_t n, char* dst) const {
    alignas(64) char copy[2][64];
    const char* p = row<kFrom>(k, n, copy[0]);
    if constexpr (kTo != DType::BF16) return v_store(dst, load16<kFrom>(p));
    const char* odd = row<kFrom>(k + 1, n, copy[1]);
    if constexpr (kFrom == DType::E4M3) return v_e4m3_pairs_to_bf16(p, odd, dst);
    const V x = load16<kFrom>(p), y = load16<kFrom>(odd);
    v_store(dst, kFrom == DType::BF16 ? v_exact_pairs(x, y) : v_pairs(x, y));
  }
  // Requests rows that are packed a little later: hardware does not foresee strides beyond a page.
  template <DType kFrom, int64_t kRows, int64_t kCols>
  void prefetch(int64_t k, int64_t n) const {
    constexpr int64_t kAhead = 32;
    for (int64_t i = k + kAhead; i < k + kAhead + kRows && i < t.k_rows; ++i)
      for (int64_t at = 0; at < kCols * kBytes<kFrom>; at += kLine)
        __builtin_prefetch(static_cast<const char*>(t.src) + (i * t.ld + n) * kBytes<kFrom> + at);
  }
  // A few panels at a time: their lines are written one after another, and whole lines of the source are read.
  template <DType kFrom, DType kTo>
  void to() const {
    constexpr int64_t kInWord = kTo == DType::BF16 ? 2 : 1, kGroup = 64;
    const int64_t words = (t.k_rows + 16 * kInWord - 1) / (16 * kInWord) * 16;
    for (int64_t group = 0; group < t.cols; group += kGroup)
      for (int64_t s = 0; s < words; ++s, prefetch<kFrom, kInWord, kGroup>(s * kInWord, group))
        for (int64_t n = group; n < t.cols && n < group + kGroup; n += 16)
          line<kFrom, kTo>(s * kInWord, n, static_cast<char*>(t.dst) + n / 16 * t.panel_stride + s * kLine);
  }
};
void pack_columns(const PackColumnsArgs& t) { with_type(t.src_type, PackColumns{t}); }

struct Widen {
  const char* src;
  float* dst;
  int64_t n;
  template <DType kFrom>
  void run() const {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) v_store(dst + i, load16<kFrom>(src + i * kBytes<kFrom>));
    if (i == n) return;
    alignas(64) float tail[16];
    v_store(tail, load_first<kFrom>(src + i * kBytes<kFrom>, n - i));
    __builtin_memcpy(dst + i, tail, static_cast<size_t>(n - i) * sizeof(float));
  }
};
void widen(const void* src, DType src_type, float* dst, int64_t n) {
  with_type(src_type, Widen{static_cast<const char*>(src), dst, n});
}

void widen_i8(const void* src, void* dst, int64_t n) {
  const char* from = static_cast<const char*>(src);
  for (char* to = static_cast<char*>(dst); n > 0; n -= 32, from += 32, to += kLine)
    v_store(to, v_exact_pairs(v_from_i8(from), v_from_i8(from + 16)));
}

void widen_e4m3(const void* src, void* dst, int64_t n) {
  const char* from = static_cast<const char*>(src);
  for (char* to = static_cast<char*>(dst); n > 0; n -= 32, from += 32, to += kLine) v_e4m3_to_bf16(from, to);
}

template <DType kTo>
void narrow_to(const float* src, char* dst, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) store16<kTo>(dst + i * kBytes<kTo>, v_load(src + i));
  if (i == n) return;
  alignas(64) char tail[64];
  store16<kTo>(tail, load_first<DType::F32>(reinterpret_cast<const char*>(src + i), n - i));
  __builtin_memcpy(dst + i * kBytes<kTo>, tail, static_cast<size_t>((n - i) * kBytes<kTo>));
}
void narrow(const float* src, void* dst, DType dst_type, int64_t n) {
  char* to = static_cast<char*>(dst);
  if (dst_type == DType::F32) narrow_to<DType::F32>(src, to, n);
  if (dst_type == DType::BF16) narrow_to<DType::BF16>(src, to, n);
  if (dst_type == DType::F16) narrow_to<DType::F16>(src, to, n);
}

/// The largest of a row whose length is a multiple of 32; ignores NaN.
inline float max_of(const float* s, int cols) {
  V a = v_set1(kHiddenScore), b = a;
  for (int j = 0; j < cols; j += 32) {
    a = v_max(v_load(s + j), a);
    b = v_max(v_load(s + j + 16), b);
  }
  return v_max_of(v_max(a, b));
}

/// P = 2^(scale * s - shift) as lines; returns the sum. kLarge: the shift was rounded by more than an exponent can
/// hold, so the products must be rounded too. (A maximum between product and sum stops the compiler from fusing them.)
template <DType kTo, bool kLarge>
inline float exp_lines(const float* s, int cols, V scale, float shift, char* p, int64_t term_stride) {
  constexpr int64_t kElements = kTo == DType::BF16 ? 32 : 16;
  constexpr bool kCoarse = kTo == DType::BF16;
  const V minus = v_set1(-shift), lowest = v_set1(-__builtin_inff());
  const auto exponent = [&](const float* from) {
    if constexpr (kLarge) return v_add(v_max(lowest, v_mul(v_load(from), scale)), minus);
    return v_fma(v_load(from), scale, minus);
  };
  V sum_a = v_zero(), sum_b = v_zero();
  for (int j = 0; j < cols; j += 32) {
    const V a = v_exp2<kCoarse>(exponent(s + j));
    const V b = v_exp2<kCoarse>(exponent(s + j + 16));
    sum_a = v_add(sum_a, a);
    sum_b = v_add(sum_b, b);
    char* dst = p + j / kElements * term_stride;
    store_line<kTo>(dst, kTo == DType::BF16 ? dst + 32 : dst + term_stride, a, b);
  }
  return v_sum_of(v_add(sum_a, sum_b));
}

void softmax(const SoftmaxArgs& t) {
  const V scale = v_set1(t.scale);
  const int cols = (t.cols + 31) / 32 * 32;
  for (int r = 0; r < t.rows; ++r) {
    float* s = t.s + r * t.ld;
    for (int j = t.cols; j < cols; ++j) s[j] = kHiddenScore;
    const float block_max = max_of(s, cols) * t.scale, before = t.first ? block_max : t.row_max[r];
    const float max = block_max > before ? block_max : before;
    char* p = static_cast<char*>(t.p) + r * kLine;
    const float shift = max > kHiddenScore ? max : 0;  // no score above it so far: the sum is 0
    constexpr float kLarge = 0x1p20f;
    const bool large = shift >= kLarge || shift <= -kLarge;
    const auto lines = t.p_type == DType::BF16
                           ? (large ? &exp_lines<DType::BF16, true> : &exp_lines<DType::BF16, false>)
                           : (large ? &exp_lines<DType::F32, true> : &exp_lines<DType::F32, false>);
    const float sum = lines(s, cols, scale, shift, p, t.p_term_stride);
    t.row_max[r] = max;
    if (t.first) {
      t.row_sum[r] = sum;
    } else if (before == max) {
      t.row_sum[r] += sum;
    } else {
      const V decay = v_exp2<false>(v_set1(before - max));
      alignas(64) float factor[16];
      v_store(factor, decay);
      t.row_sum[r] = t.row_sum[r] * factor[0] + sum;
      float* o = t.o + r * t.o_ld;
      for (int j = 0; j < t.o_cols; j += 16) v_store(o + j, v_mul(v_load(o + j), decay));
    }
  }
}

void softmax_end(float* o, int64_t ld, int rows, int cols, const float* row_sum) {
  for (int r = 0; r < rows; ++r) {
    const V inverse = v_set1(1.0f / row_sum[r]);
    for (int j = 0; j < cols; j += 16) v_store(o + r * ld + j, v_mul(v_load(o + r * ld + j), inverse));
  }
}

void no_tiles() {}

}  // namespace
}  // namespace tenon::cpu
