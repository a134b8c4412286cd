// The kernels for AVX-512 with BF16 and VNNI: one instruction multiplies and sums pairs of bf16, or four bytes.
#include "tenon/backend/cpu/tile/isa/vec_avx512.h"
// After the vector vocabulary:
#include "tenon/backend/cpu/tile/isa/four_bytes.h"
#include "tenon/backend/cpu/tile/isa/vector_table.h"

namespace tenon::cpu {
namespace {

struct DotPairs {
  static constexpr int64_t kWordBytes = 64;
  using A = V;
  using B = V;
  static A load_a(const char* p) { return v_repeat(p); }
  static B load_b(const char* p) { return v_load(p); }
  static V add(V acc, A a, B b) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static constexpr int rows(int panels) { return DotF32::rows(panels); }
};

struct DotPairsI8 : DotPairs {
  static constexpr int64_t kWordBytes = 32;
  static B load_b(const char* p) { return v_exact_pairs(v_from_i8(p), v_from_i8(p + 16)); }
};

}  // namespace

const TileOps kAvx512Bf16Ops = vector_table<DotPairs, DotPairsI8, DotFourBytes>(Isa::Avx512Bf16, "avx512bf16", true);

}  // namespace tenon::cpu
