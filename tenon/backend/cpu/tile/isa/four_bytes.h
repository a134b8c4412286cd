// Products of bytes by AVX512-VNNI. Included only by the files of instruction sets that have it, after vec_avx512.h.
#pragma once
#include "tenon/backend/cpu/tile/isa/vec_avx512.h"

namespace tenon::cpu {
namespace {

/// One instruction multiplies and sums four bytes.
struct DotFourBytes {
  using A = I;
  using B = I;
  static A load_a(const void* p) { return i_repeat(p); }
  static B load_b(const void* p) { return i_load(p); }
  static I step(I acc, A a, B b) { return _mm512_dpbusd_epi32(acc, b, a); }
  static constexpr int rows(int panels) { return panels == 4 ? 3 : 6; }
};

}  // namespace
}  // namespace tenon::cpu
