// The tape's vector maths for AVX-512 (F, BW, VL, DQ).
#include <immintrin.h>

#include "tenon/backend/cpu/tape/vec_tables.h"

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

#include "tenon/backend/cpu/tape/vec_kernels.h"

namespace tenon::cpu {
const VecOps& vec_ops_avx512() {
  static constexpr VecOps ops = make_table("avx512");
  return ops;
}
}  // namespace tenon::cpu
