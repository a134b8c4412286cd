// Warpgroup matrix products on sm_90 with the left operand in registers, as mma fragments. Part of vocabulary.h, for
// the kernels that include it; the host half is in vocabulary_host.h.
#pragma once
#include "tenon/backend/cuda/device/vocabulary.h"
#ifndef TENON_DEVICE_ON_HOST

namespace tenon::device {

// ---- d[64, N] (+)= a[64, 16] b, accumulated in f32, N = 8 * fragments. `a`: the four mma registers of the warp's 16
// rows, which must not change until the product has been waited for. `b`, selected by kColumns, is one of
//   wgmma_rows       [N rows][16 columns]: as in other products; 16 columns further is + 32 bytes
//   wgmma_columns    [16 rows][N columns], blocks of 64 columns: 16 rows further is + 2048 bytes

// Operands after the sums, numbered from their count on: a, b, whether to accumulate, kColumns.
#define TENON_HELD(name, type, n, fragments, registers, a0, a1, a2, a3, b_at, adds_at, columns_at, ...)            \
  template <bool kColumns>                                                                                         \
  DEV void wgmma_held_##name(float(&d)[fragments][4], const uint32_t(&a)[4], uint64_t b, bool adds) {              \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" adds_at                                                      \
                 ", 0;\n"                                                                                          \
                 "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" registers "}, {%" a0 ", %" a1 \
                 ", %" a2 ", %" a3 "}, %" b_at ", p, 1, 1, %" columns_at ";\n}\n"                                  \
                 : __VA_ARGS__                                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)),                \
                   "n"(kColumns ? 1 : 0));                                                                         \
  }
#define TENON_HELD_OF(name, type)                                                                                      \
  TENON_HELD(name, type, "40", 5, TENON_REGISTERS_16 ", %16, %17, %18, %19", "20", "21", "22", "23", "24", "25", "26", \
             TENON_FIRST_16, TENON_SUMS_4(4))                                                                          \
  TENON_HELD(name, type, "64", 8, TENON_REGISTERS_32, "32", "33", "34", "35", "36", "37", "38", TENON_FIRST_32)        \
  TENON_HELD(name, type, "80", 10, TENON_REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39", "40", "41", "42",    \
             "43", "44", "45", "46", TENON_FIRST_32, TENON_SUMS_4(8), TENON_SUMS_4(9))                                 \
  TENON_HELD(name, type, "96", 12, TENON_REGISTERS_48, "48", "49", "50", "51", "52", "53", "54", TENON_FIRST_48)       \
  TENON_HELD(name, type, "128", 16, TENON_REGISTERS_64, "64", "65", "66", "67", "68", "69", "70", TENON_FIRST_64)      \
  TENON_HELD(name, type, "160", 20, TENON_REGISTERS_80, "80", "81", "82", "83", "84", "85", "86", TENON_FIRST_80)      \
  TENON_HELD(name, type, "192", 24, TENON_REGISTERS_96, "96", "97", "98", "99", "100", "101", "102", TENON_FIRST_96)   \
  TENON_HELD(name, type, "256", 32, TENON_REGISTERS_128, "128", "129", "130", "131", "132", "133", "134",              \
             TENON_FIRST_128)
// Both operands in shared memory, 80 rows of b: beside the widths of vocabulary_sm90.h.
#define TENON_SHARED_80(name, type)                                                                          \
  TENON_WGMMA(wgmma_##name, "m64n80k16.f32." type "." type, 10,                                              \
              TENON_REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39", "40", "41", "42", "1, 1, 0, 0", \
              TENON_FIRST_32, TENON_SUMS_4(8), TENON_SUMS_4(9))
TENON_SHARED_80(bf16, "bf16")
TENON_SHARED_80(f16, "f16")
TENON_HELD_OF(bf16, "bf16")
TENON_HELD_OF(f16, "f16")

}  // namespace tenon::device
#endif
