// The bf16 kernel on AMX.
#include "tenon/backend/cpu/tile/isa/amx_gemm.h"

#include "tenon/backend/cpu/tile/isa/tables.h"
#include "tenon/backend/cpu/tile/isa/vec_avx512.h"

namespace tenon::cpu {
namespace {

// Assembly, since GCC's intrinsics are macros that paste the tile number as text: a template parameter does not work.
struct HardwareTiles {
  template <int i>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(i));
  }
  template <int i>
  static void load(const void* base, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(i), "r"(base), "r"(stride) : "memory");
  }
  template <int i>
  static void store(void* base, int64_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(i), "r"(base), "r"(stride) : "memory");
  }
  template <int c, int a, int b>
  static void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
  static void widen(const char* from, char* to) {
#pragma GCC unroll 16
    for (int64_t line = 0; line < kBlock / kLine; ++line)
      v_store(to + line * kLine, v_exact_pairs(v_from_i8(from + line * 32), v_from_i8(from + line * 32 + 16)));
  }
};

// Eight tiles of 16 rows x 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace

void amx_gemm_bf16(const TileArgs& args) { amx_gemm<HardwareTiles>(args); }
void amx_gemm_bf16_i8(const TileArgs& args) { amx_gemm<HardwareTiles, true>(args); }

void amx_enter() {
  const TileConfig config;
  asm volatile("ldtilecfg %0" ::"m"(config));
}

void amx_leave() { asm volatile("tilerelease"); }

}  // namespace tenon::cpu
