// What AVX-VNNI adds to AVX2: products of i8 in blocks.
#include "tenon/backend/cpu/tile/isa/vec_avx2.h"
// After the vector vocabulary:
#include "tenon/backend/cpu/tile/isa/i8_kernels.h"
#include "tenon/backend/cpu/tile/isa/tables.h"

namespace tenon::cpu {
namespace {

/// One instruction multiplies and sums four bytes, in each half of a line.
struct DotHalves {
  using A = I;
  using B = I;
  static A load_a(const void* p) { return i_repeat(p); }
  static B load_b(const void* p) { return i_load(p); }
  static I step(I acc, A a, B b) {
    return {_mm256_dpbusd_avx_epi32(acc.l, b.l, a.l), _mm256_dpbusd_avx_epi32(acc.h, b.h, a.h)};
  }
  static constexpr int rows(int panels) { return panels == 1 ? 3 : 0; }
};

}  // namespace

void avx_vnni_gemm_i8(const TileArgs& args) { i8_tiles<DotHalves>(args); }

}  // namespace tenon::cpu
