// The tape's vector maths for AVX-512 (F, BW, VL, DQ).
#include <immintrin.h>

#include "tenon/backend/cpu/tape/vec_tables.h"
#include "tenon/core/hd.h"

namespace tenon::cpu {
namespace {

constexpr int kLanes = 16;
typedef float V __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));

inline V from_f16(Halves h) { return reinterpret_cast<V>(_mm512_cvtph_ps(reinterpret_cast<__m256i>(h))); }
inline Halves to_f16(V x) {
  return reinterpret_cast<Halves>(
      _mm512_cvtps_ph(reinterpret_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

}  // namespace
}  // namespace tenon::cpu

// Rounding, scaling by powers of two, reciprocals and a * b + c are single instructions here; most activations are
// built on them. Always inlined, so that no code of these names leaves this file.
namespace tenon::hd {

/// Like the generic version, accurate to 1 ulp, down to the smallest denormal.
template <>
__attribute__((always_inline)) inline cpu::V exp<cpu::V>(cpu::V value) {
  const auto set1 = [](float f) { return _mm512_set1_ps(f); };
  const __m512 x = reinterpret_cast<__m512>(value);
  // If either operand is NaN, the result is the second one.
  const __m512 clamped = _mm512_max_ps(set1(-104.0f), _mm512_min_ps(set1(89.0f), x));
  const __m512 n =
      _mm512_roundscale_ps(_mm512_mul_ps(clamped, set1(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, set1(0.693359375f), clamped);
  r = _mm512_fnmadd_ps(n, set1(-2.12194440e-4f), r);
  __m512 p = _mm512_fmadd_ps(set1(1.9875691500e-4f), r, set1(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, set1(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, set1(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, set1(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, set1(5.0000001201e-1f));
  p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), set1(1.0f));
  return reinterpret_cast<cpu::V>(_mm512_scalef_ps(p, n));
}

/// 1 / (1 + e^-x) by a reciprocal estimate and one Newton step; 2 ulp.
template <>
__attribute__((always_inline)) inline cpu::V sigmoid<cpu::V>(cpu::V x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 d = _mm512_add_ps(one, reinterpret_cast<__m512>(exp<cpu::V>(-x)));
  const __m512 y = _mm512_rcp14_ps(d);
  // 0 where d is infinite: the Newton step would produce NaN.
  const __mmask16 finite = _mm512_cmp_ps_mask(d, _mm512_set1_ps(INFINITY), _CMP_NEQ_UQ);
  return reinterpret_cast<cpu::V>(_mm512_maskz_fmadd_ps(finite, _mm512_fnmadd_ps(d, y, one), y, y));
}

template <>
__attribute__((always_inline)) inline cpu::V fma<cpu::V>(cpu::V a, cpu::V b, cpu::V c) {
  return reinterpret_cast<cpu::V>(
      _mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
}

}  // namespace tenon::hd

#include "tenon/backend/cpu/tape/vec_kernels.h"

namespace tenon::cpu {
const VecOps& vec_ops_avx512() {
  static constexpr VecOps ops = make_table("avx512");
  return ops;
}
}  // namespace tenon::cpu
