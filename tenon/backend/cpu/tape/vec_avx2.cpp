// The tape's vector maths for AVX2, FMA and F16C.
#include <immintrin.h>

#include "tenon/backend/cpu/tape/vec_tables.h"
#include "tenon/core/hd.h"

namespace tenon::cpu {
namespace {

constexpr int kLanes = 8;
typedef float V __attribute__((vector_size(32)));
typedef uint16_t Halves __attribute__((vector_size(16)));

inline V from_f16(Halves h) { return reinterpret_cast<V>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(h))); }
inline Halves to_f16(V x) {
  return reinterpret_cast<Halves>(_mm256_cvtps_ph(reinterpret_cast<__m256>(x), _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace
}  // namespace tenon::cpu

// A single instruction here. Always inlined, so that no code of this name leaves this file.
namespace tenon::hd {

template <>
__attribute__((always_inline)) inline cpu::V fma<cpu::V>(cpu::V a, cpu::V b, cpu::V c) {
  return reinterpret_cast<cpu::V>(
      _mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
}

}  // namespace tenon::hd

#include "tenon/backend/cpu/tape/vec_kernels.h"

namespace tenon::cpu {
const VecOps& vec_ops_avx2() {
  static constexpr VecOps ops = make_table("avx2");
  return ops;
}
}  // namespace tenon::cpu
