// Sixteen floats at a time on AVX-512 (F, BW, VL, DQ; BF16 if the including file is compiled with it). Only for the
// files of one instruction set: all names have internal linkage, so that no other file can link to code compiled for a
// machine that it may not run on.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace tenon::cpu {
namespace {

using V = __m512;
using I = __m512i;  // sixteen 32-bit integers
constexpr int kRegisters = 32;
/// 0 to 7 times 2^-9, the subnormals of e4m3, in bf16.
alignas(16) constexpr uint16_t kMinE4m3[8] = {0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};

inline V v_zero() { return _mm512_setzero_ps(); }
inline V v_set1(float x) { return _mm512_set1_ps(x); }
inline V v_load(const void* p) { return _mm512_loadu_ps(p); }
inline void v_store(void* p, V x) { _mm512_storeu_ps(p, x); }
/// Broadcasts the 32 bits at p.
inline V v_repeat(const void* p) {
  return _mm512_castsi512_ps(_mm512_set1_epi32(*static_cast<const int __attribute__((may_alias, aligned(1)))*>(p)));
}
inline V v_add(V a, V b) { return _mm512_add_ps(a, b); }
inline V v_sub(V a, V b) { return _mm512_sub_ps(a, b); }
inline V v_mul(V a, V b) { return _mm512_mul_ps(a, b); }
inline V v_fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
/// The larger; b if either is NaN.
inline V v_max(V a, V b) { return _mm512_max_ps(a, b); }
inline float v_max_of(V x) { return _mm512_reduce_max_ps(x); }
inline float v_sum_of(V x) { return _mm512_reduce_add_ps(x); }

/// The even (low) and odd (high) bf16 of each 32-bit pair, as floats.
inline V v_even(V x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 16)); }
inline V v_odd(V x) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

inline V v_from_bf16(const void* p) {
  const __m256i bits = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline V v_from_f16(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
/// e4m3 shifted into an f16 is the value / 256; the NaN pattern would come out as 480.
inline V v_from_e4m3(const void* p) {
  const __m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(b, _mm256_set1_epi16(0x80)), 8);
  const __m256i rest = _mm256_slli_epi16(_mm256_and_si256(b, _mm256_set1_epi16(0x7f)), 7);
  const V x = _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(sign, rest)), v_set1(256.0f));
  const __mmask16 nan = _mm512_cmp_ps_mask(_mm512_abs_ps(x), v_set1(480.0f), _CMP_EQ_OQ);
  return _mm512_mask_mov_ps(x, nan, v_set1(__builtin_nanf("")));
}
/// Converts 32 e4m3 numbers to bf16, in order, to the same values as by way of f32.
inline void e4m3_to_bf16(__m256i numbers, void* q) {
  const I b = _mm512_cvtepu8_epi16(numbers);
  const I magnitude = _mm512_and_si512(b, _mm512_set1_epi16(0x7f)),
          sign = _mm512_slli_epi16(_mm512_srli_epi16(b, 7), 15);
  const I least = _mm512_maskz_loadu_epi16(0xff, kMinE4m3);  // subnormals
  I x = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(0x3c00));
  x = _mm512_mask_permutexvar_epi16(x, _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8)), magnitude, least);
  const __mmask32 nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f));
  _mm512_storeu_si512(q, _mm512_mask_mov_epi16(_mm512_or_si512(x, sign), nan, _mm512_set1_epi16(0x7fc0)));
}
inline void v_e4m3_to_bf16(const void* p, void* q) {
  e4m3_to_bf16(_mm256_loadu_si256(static_cast<const __m256i*>(p)), q);
}
/// The same for pairs of p[i] and odd[i], 16 of each.
inline void v_e4m3_pairs_to_bf16(const void* p, const void* odd, void* q) {
  const __m128i a = _mm_loadu_si128(static_cast<const __m128i*>(p)),
                b = _mm_loadu_si128(static_cast<const __m128i*>(odd));
  e4m3_to_bf16(_mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b)), q);
}
inline V v_from_i8(const void* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
inline V v_from_i32(I x) { return _mm512_cvtepi32_ps(x); }
/// The largest magnitude of both; NaN if there is any.
inline float v_largest_of(V a, V b) {
  const I x = _mm512_castps_si512(_mm512_abs_ps(a)), y = _mm512_castps_si512(_mm512_abs_ps(b));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(_mm512_max_epi32(x, y)))));
}
/// Writes sixteen i8, rounded to nearest even, and returns their sum.
inline int v_to_i8(void* p, V x) {
  const I whole = _mm512_cvtps_epi32(x);
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(whole));
  return _mm512_reduce_add_epi32(whole);
}

inline I i_load(const void* p) { return _mm512_loadu_si512(p); }
inline void i_store(void* p, I x) { _mm512_storeu_si512(p, x); }
/// Broadcasts the 32 bits at p.
inline I i_repeat(const void* p) { return _mm512_castps_si512(v_repeat(p)); }
inline I i_add(I a, I b) { return _mm512_add_epi32(a, b); }
/// The first (second) byte of each pair, as unsigned and signed 16-bit integers.
inline I i_low_bytes(I x) { return _mm512_and_si512(x, _mm512_set1_epi16(0xff)); }
inline I i_high_bytes(I x) { return _mm512_srli_epi16(x, 8); }
inline I i_low_signed(I x) { return _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8); }
inline I i_high_signed(I x) { return _mm512_srai_epi16(x, 8); }
/// Products of 16-bit integers, added in pairs.
inline I i_pair_sums(I a, I b) { return _mm512_madd_epi16(a, b); }
#ifdef __AVX512VNNI__
/// Adds products of unsigned bytes by signed ones, four to each 32-bit sum.
inline I i_add_byte_products(I sum, I a, I b) { return _mm512_dpbusd_epi32(sum, a, b); }
#endif

inline void v_to_f16(void* p, V x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline __m256i bf16_of(V x) {
#ifdef __AVX512BF16__
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
#else
  const __m512i u = _mm512_castps_si512(x);
  const __m512i tie = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(tie, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i y = _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(y, 16));
#endif
}
inline void v_to_bf16(void* p, V x) { _mm256_storeu_si256(static_cast<__m256i*>(p), bf16_of(x)); }

/// Pairs of bf16 in 32-bit lanes: `even` in the low halves.
inline V v_pairs(V even, V odd) {
  const __m512i low = _mm512_cvtepu16_epi32(bf16_of(even)), high = _mm512_cvtepu16_epi32(bf16_of(odd));
  return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

/// The same for numbers that bf16 represents exactly.
inline V v_exact_pairs(V even, V odd) {
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(even), 16);
  return _mm512_castsi512_ps(_mm512_mask_blend_epi16(0xaaaaaaaau, low, _mm512_castps_si512(odd)));
}

/// 2^x for x <= 0; NaN yields NaN, large negative numbers 0. So does -inf, because scalef makes 0 of NaN and -inf.
/// Relative error 1.5e-7, or 2.6e-6 if `kCoarse`.
template <bool kCoarse>
inline V v_exp2(V x) {
  const V n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const V f = v_sub(x, n);
  if constexpr (kCoarse) {
    V p = v_fma(v_set1(0.009570101f), f, v_set1(0.05591786f));
    p = v_fma(p, f, v_set1(0.24024744f));
    p = v_fma(p, f, v_set1(0.6931218f));
    return _mm512_scalef_ps(v_fma(p, f, v_set1(0.9999993f)), n);
  }
  V p = v_fma(v_set1(0.0013276471f), f, v_set1(0.009675541f));
  p = v_fma(p, f, v_set1(0.05550713f));
  p = v_fma(p, f, v_set1(0.2402212f));
  p = v_fma(p, f, v_set1(0.69314694f));
  return _mm512_scalef_ps(v_fma(p, f, v_set1(1.0f)), n);
}

/// dst[j][i] = src[i][j] for 16 x 16 32-bit words, in lines of 64 bytes; those of src are `ld` bytes apart.
inline void transpose16(const char* src, int64_t ld, char* dst) {
  __m512i r[16], s[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(src + ld * i);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    s[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    s[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  // r[4 g + j]: 128-bit part q holds column 4 q + j of rows 4 g .. 4 g + 3
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    r[4 * g] = _mm512_unpacklo_epi64(s[4 * g], s[4 * g + 2]);
    r[4 * g + 1] = _mm512_unpackhi_epi64(s[4 * g], s[4 * g + 2]);
    r[4 * g + 2] = _mm512_unpacklo_epi64(s[4 * g + 1], s[4 * g + 3]);
    r[4 * g + 3] = _mm512_unpackhi_epi64(s[4 * g + 1], s[4 * g + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88), b = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
    const __m512i c = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd), d = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
    _mm512_storeu_si512(dst + 64 * j, _mm512_shuffle_i32x4(a, b, 0x88));
    _mm512_storeu_si512(dst + 64 * (4 + j), _mm512_shuffle_i32x4(c, d, 0x88));
    _mm512_storeu_si512(dst + 64 * (8 + j), _mm512_shuffle_i32x4(a, b, 0xdd));
    _mm512_storeu_si512(dst + 64 * (12 + j), _mm512_shuffle_i32x4(c, d, 0xdd));
  }
}

}  // namespace
}  // namespace tenon::cpu
