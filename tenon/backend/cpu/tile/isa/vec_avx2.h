// Sixteen floats at a time on AVX2, FMA and F16C, in two registers. Same functions as vec_avx512.h, which states the
// rules for inclusion.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace tenon::cpu {
namespace {

struct V {
  __m256 l, h;
};
/// Sixteen 32-bit integers.
struct I {
  __m256i l, h;
};
constexpr int kRegisters = 16;

inline V v_zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline V v_set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V v_load(const void* p) {
  const float* f = static_cast<const float*>(p);
  return {_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
}
inline void v_store(void* p, V x) {
  float* f = static_cast<float*>(p);
  _mm256_storeu_ps(f, x.l);
  _mm256_storeu_ps(f + 8, x.h);
}
/// Broadcasts the 32 bits at p.
inline V v_repeat(const void* p) {
  const __m256 x = _mm256_broadcast_ss(static_cast<const float*>(p));
  return {x, x};
}
inline V v_add(V a, V b) { return {_mm256_add_ps(a.l, b.l), _mm256_add_ps(a.h, b.h)}; }
inline V v_sub(V a, V b) { return {_mm256_sub_ps(a.l, b.l), _mm256_sub_ps(a.h, b.h)}; }
inline V v_mul(V a, V b) { return {_mm256_mul_ps(a.l, b.l), _mm256_mul_ps(a.h, b.h)}; }
inline V v_fma(V a, V b, V c) { return {_mm256_fmadd_ps(a.l, b.l, c.l), _mm256_fmadd_ps(a.h, b.h, c.h)}; }
/// The larger; b if either is NaN.
inline V v_max(V a, V b) { return {_mm256_max_ps(a.l, b.l), _mm256_max_ps(a.h, b.h)}; }
inline float v_max_of(V x) {
  const __m256 m = _mm256_max_ps(x.l, x.h);
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
inline float v_sum_of(V x) {
  const __m256 m = _mm256_add_ps(x.l, x.h);
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/// The even (low) and odd (high) bf16 of each 32-bit pair, as floats.
inline __m256 even_half(__m256 x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 16)); }
inline __m256 odd_half(__m256 x) {
  return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline V v_even(V x) { return {even_half(x.l), even_half(x.h)}; }
inline V v_odd(V x) { return {odd_half(x.l), odd_half(x.h)}; }

inline __m256 widen_bf16(__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
inline V v_from_bf16(const void* p) {
  const __m128i* q = static_cast<const __m128i*>(p);
  return {widen_bf16(_mm_loadu_si128(q)), widen_bf16(_mm_loadu_si128(q + 1))};
}
inline V v_from_f16(const void* p) {
  const __m128i* q = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
/// e4m3 shifted into an f16 is the value / 256; the NaN pattern would come out as 480.
inline __m256 widen_e4m3(__m128i halves) {
  const __m256 x = _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(256.0f));
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
  const __m256 nan = _mm256_cmp_ps(magnitude, _mm256_set1_ps(480.0f), _CMP_EQ_OQ);
  return _mm256_or_ps(x, nan);
}
inline V v_from_e4m3(const void* p) {
  const __m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(b, _mm256_set1_epi16(0x80)), 8);
  const __m256i rest = _mm256_slli_epi16(_mm256_and_si256(b, _mm256_set1_epi16(0x7f)), 7);
  const __m256i halves = _mm256_or_si256(sign, rest);
  return {widen_e4m3(_mm256_castsi256_si128(halves)), widen_e4m3(_mm256_extracti128_si256(halves, 1))};
}
inline __m256 i8_floats(__m128i x) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)); }
inline V v_from_i8(const void* p) {
  const __m128i b = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {i8_floats(b), i8_floats(_mm_unpackhi_epi64(b, b))};
}
inline V v_from_i32(I x) { return {_mm256_cvtepi32_ps(x.l), _mm256_cvtepi32_ps(x.h)}; }
inline int largest_of(__m256i x) {
  __m128i q = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  q = _mm_max_epi32(q, _mm_unpackhi_epi64(q, q));
  return _mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 1)));
}
/// The largest magnitude of both; NaN if there is any.
inline float v_largest_of(V a, V b) {
  const __m256i rest = _mm256_set1_epi32(0x7fffffff);
  const auto bits = [&](__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), rest); };
  const __m256i x = _mm256_max_epi32(_mm256_max_epi32(bits(a.l), bits(a.h)), _mm256_max_epi32(bits(b.l), bits(b.h)));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(largest_of(x))));
}
/// Writes sixteen i8, rounded to nearest even, and returns their sum.
inline int v_to_i8(void* p, V x) {
  const __m256i l = _mm256_cvtps_epi32(x.l), h = _mm256_cvtps_epi32(x.h);
  const __m256i halves = _mm256_permute4x64_epi64(_mm256_packs_epi32(l, h), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
  _mm_storeu_si128(static_cast<__m128i*>(p), bytes);
  const __m256i both = _mm256_add_epi32(l, h);
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  sum = _mm_add_epi32(sum, _mm_unpackhi_epi64(sum, sum));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 1)));
}

inline I i_load(const void* p) {
  const __m256i* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
/// Broadcasts the 32 bits at p.
inline void i_store(void* p, I x) {
  __m256i* q = static_cast<__m256i*>(p);
  _mm256_storeu_si256(q, x.l);
  _mm256_storeu_si256(q + 1, x.h);
}
inline I i_repeat(const void* p) {
  const __m256i x = _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(p)));
  return {x, x};
}
inline I i_add(I a, I b) { return {_mm256_add_epi32(a.l, b.l), _mm256_add_epi32(a.h, b.h)}; }
/// The first (second) byte of each pair, as unsigned and signed 16-bit integers.
inline I i_low_bytes(I x) {
  const __m256i low = _mm256_set1_epi16(0xff);
  return {_mm256_and_si256(x.l, low), _mm256_and_si256(x.h, low)};
}
inline I i_high_bytes(I x) { return {_mm256_srli_epi16(x.l, 8), _mm256_srli_epi16(x.h, 8)}; }
inline I i_low_signed(I x) {
  return {_mm256_srai_epi16(_mm256_slli_epi16(x.l, 8), 8), _mm256_srai_epi16(_mm256_slli_epi16(x.h, 8), 8)};
}
inline I i_high_signed(I x) { return {_mm256_srai_epi16(x.l, 8), _mm256_srai_epi16(x.h, 8)}; }
/// Products of 16-bit integers, added in pairs.
inline I i_pair_sums(I a, I b) { return {_mm256_madd_epi16(a.l, b.l), _mm256_madd_epi16(a.h, b.h)}; }
#ifdef __AVXVNNI__
/// Adds products of unsigned bytes by signed ones, four to each 32-bit sum.
inline I i_add_byte_products(I sum, I a, I b) {
  return {_mm256_dpbusd_avx_epi32(sum.l, a.l, b.l), _mm256_dpbusd_avx_epi32(sum.h, a.h, b.h)};
}
#endif

inline void v_to_f16(void* p, V x) {
  __m128i* q = static_cast<__m128i*>(p);
  _mm_storeu_si128(q, _mm256_cvtps_ph(x.l, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(q + 1, _mm256_cvtps_ph(x.h, _MM_FROUND_TO_NEAREST_INT));
}
/// bf16 bits of eight floats, each in a 32-bit lane.
inline __m256i round_bf16(__m256 x) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i tie = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(tie, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
inline void v_to_bf16(void* p, V x) {
  const __m256i packed = _mm256_packus_epi32(round_bf16(x.l), round_bf16(x.h));
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
/// Converts 32 e4m3 numbers to bf16, in order.
inline void v_e4m3_to_bf16(const void* p, void* q) {
  v_to_bf16(q, v_from_e4m3(p));
  v_to_bf16(static_cast<char*>(q) + 32, v_from_e4m3(static_cast<const char*>(p) + 16));
}
inline __m256 pairs_half(__m256 even, __m256 odd) {
  return _mm256_castsi256_ps(_mm256_or_si256(round_bf16(even), _mm256_slli_epi32(round_bf16(odd), 16)));
}
/// Pairs of bf16 in 32-bit lanes: `even` in the low halves.
inline V v_pairs(V even, V odd) { return {pairs_half(even.l, odd.l), pairs_half(even.h, odd.h)}; }
/// The same for numbers that bf16 represents exactly.
inline __m256 exact_half(__m256 even, __m256 odd) {
  const __m256i low = _mm256_srli_epi32(_mm256_castps_si256(even), 16);
  return _mm256_castsi256_ps(_mm256_blend_epi16(low, _mm256_castps_si256(odd), 0xaa));
}
inline V v_exact_pairs(V even, V odd) { return {exact_half(even.l, odd.l), exact_half(even.h, odd.h)}; }
/// Converts pairs of e4m3 numbers p[i] and odd[i], 16 of each, to bf16.
inline void v_e4m3_pairs_to_bf16(const void* p, const void* odd, void* q) {
  v_store(q, v_exact_pairs(v_from_e4m3(p), v_from_e4m3(odd)));
}

/// 2^x for x <= 0; NaN yields NaN, anything below -126 yields 0. Relative error 1.5e-7, or 2.6e-6 if `kCoarse`.
template <bool kCoarse>
inline __m256 exp2_half(__m256 x) {
  const __m256 kept = _mm256_cmp_ps(x, _mm256_set1_ps(-126.0f), _CMP_NLT_UQ);
  x = _mm256_and_ps(x, kept);  // not -126: the coarse 2^-126 is subnormal, which takes Intel's processors 150 cycles
  const __m256 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 f = _mm256_sub_ps(x, n);
  __m256 p = _mm256_set1_ps(kCoarse ? 0.009570101f : 0.009675541f);
  if constexpr (!kCoarse) p = _mm256_fmadd_ps(_mm256_set1_ps(0.0013276471f), f, p);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kCoarse ? 0.05591786f : 0.05550713f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kCoarse ? 0.24024744f : 0.2402212f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kCoarse ? 0.6931218f : 0.69314694f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kCoarse ? 0.9999993f : 1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_and_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(exponent)), kept);
}
template <bool kCoarse>
inline V v_exp2(V x) {
  return {exp2_half<kCoarse>(x.l), exp2_half<kCoarse>(x.h)};
}

/// Transposes 8 x 8 32-bit words into lines of 64 bytes.
inline void transpose8(const char* src, int64_t ld, char* dst) {
  __m256 r[8], s[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(src + ld * i));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    s[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    s[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int g = 0; g < 2; ++g) {
    r[4 * g] = _mm256_shuffle_ps(s[4 * g], s[4 * g + 2], 0x44);
    r[4 * g + 1] = _mm256_shuffle_ps(s[4 * g], s[4 * g + 2], 0xee);
    r[4 * g + 2] = _mm256_shuffle_ps(s[4 * g + 1], s[4 * g + 3], 0x44);
    r[4 * g + 3] = _mm256_shuffle_ps(s[4 * g + 1], s[4 * g + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    _mm256_storeu_ps(reinterpret_cast<float*>(dst + 64 * j), _mm256_permute2f128_ps(r[j], r[4 + j], 0x20));
    _mm256_storeu_ps(reinterpret_cast<float*>(dst + 64 * (4 + j)), _mm256_permute2f128_ps(r[j], r[4 + j], 0x31));
  }
}
/// dst[j][i] = src[i][j] for 16 x 16 32-bit words, in lines of 64 bytes; those of src are `ld` bytes apart.
inline void transpose16(const char* src, int64_t ld, char* dst) {
  transpose8(src, ld, dst);
  transpose8(src + 32, ld, dst + 8 * 64);
  transpose8(src + 8 * ld, ld, dst + 32);
  transpose8(src + 8 * ld + 32, ld, dst + 8 * 64 + 32);
}

}  // namespace
}  // namespace tenon::cpu
