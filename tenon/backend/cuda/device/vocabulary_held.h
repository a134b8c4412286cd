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
/// The descriptor of 128-byte rows with the 128-byte swizzle, whose rows are the product's inner dimension (MN-major).
/// Row 0 is at a multiple of 1024 bytes; the next 64 columns are `block_bytes` (a multiple of 1024) further.
DEV uint64_t wgmma_columns(uint32_t address, int block_bytes) {
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | static_cast<uint64_t>(block_bytes >> 4) << 16 |
         ((address & 0x3ffff) >> 4);
}

#define TENON_EIGHT_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TENON_EIGHT_1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define TENON_EIGHT_2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define TENON_EIGHT_3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define TENON_EIGHT_4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define TENON_EIGHT_5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define TENON_EIGHT_6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define TENON_EIGHT_7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define TENON_EIGHT_8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define TENON_EIGHT_9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define TENON_EIGHT_10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define TENON_EIGHT_11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define TENON_EIGHT_12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define TENON_EIGHT_13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define TENON_EIGHT_14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define TENON_EIGHT_15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define TENON_SUM(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define TENON_SUMS_2(i) TENON_SUM(i), TENON_SUM((i) + 1)
#define TENON_SUMS_8(i) TENON_SUMS_2(i), TENON_SUMS_2((i) + 2), TENON_SUMS_2((i) + 4), TENON_SUMS_2((i) + 6)
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
#define TENON_TO_16 TENON_EIGHT_0 ", " TENON_EIGHT_1
#define TENON_TO_32 TENON_TO_16 ", " TENON_EIGHT_2 ", " TENON_EIGHT_3
#define TENON_TO_48 TENON_TO_32 ", " TENON_EIGHT_4 ", " TENON_EIGHT_5
#define TENON_TO_64 TENON_TO_48 ", " TENON_EIGHT_6 ", " TENON_EIGHT_7
#define TENON_TO_80 TENON_TO_64 ", " TENON_EIGHT_8 ", " TENON_EIGHT_9
#define TENON_TO_96 TENON_TO_80 ", " TENON_EIGHT_10 ", " TENON_EIGHT_11
#define TENON_TO_128 TENON_TO_96 ", " TENON_EIGHT_12 ", " TENON_EIGHT_13 ", " TENON_EIGHT_14 ", " TENON_EIGHT_15
#define TENON_HELD_OF(name, type)                                                                                   \
  TENON_HELD(name, type, "40", 5, TENON_TO_16 ", %16, %17, %18, %19", "20", "21", "22", "23", "24", "25", "26",     \
             TENON_SUMS_2(0), TENON_SUMS_2(2), TENON_SUM(4))                                                        \
  TENON_HELD(name, type, "64", 8, TENON_TO_32, "32", "33", "34", "35", "36", "37", "38", TENON_SUMS_8(0))           \
  TENON_HELD(name, type, "80", 10, TENON_TO_32 ", " TENON_EIGHT_4, "40", "41", "42", "43", "44", "45", "46",        \
             TENON_SUMS_8(0), TENON_SUMS_2(8))                                                                      \
  TENON_HELD(name, type, "96", 12, TENON_TO_48, "48", "49", "50", "51", "52", "53", "54", TENON_SUMS_8(0),          \
             TENON_SUMS_2(8), TENON_SUMS_2(10))                                                                     \
  TENON_HELD(name, type, "128", 16, TENON_TO_64, "64", "65", "66", "67", "68", "69", "70", TENON_SUMS_8(0),         \
             TENON_SUMS_8(8))                                                                                       \
  TENON_HELD(name, type, "160", 20, TENON_TO_80, "80", "81", "82", "83", "84", "85", "86", TENON_SUMS_8(0),         \
             TENON_SUMS_8(8), TENON_SUMS_2(16), TENON_SUMS_2(18))                                                   \
  TENON_HELD(name, type, "192", 24, TENON_TO_96, "96", "97", "98", "99", "100", "101", "102", TENON_SUMS_8(0),      \
             TENON_SUMS_8(8), TENON_SUMS_8(16))                                                                     \
  TENON_HELD(name, type, "256", 32, TENON_TO_128, "128", "129", "130", "131", "132", "133", "134", TENON_SUMS_8(0), \
             TENON_SUMS_8(8), TENON_SUMS_8(16), TENON_SUMS_8(24))
// Both operands in shared memory, like those of vocabulary_sm90.h.
#define TENON_SHARED(name, type, n, fragments, registers, a_at, b_at, adds_at, ...)                                   \
  DEV void wgmma_##name(float(&d)[fragments][4], uint64_t a, uint64_t b, bool adds) {                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" adds_at                                                         \
                 ", 0;\n"                                                                                             \
                 "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" registers "}, %" a_at ", %" b_at \
                 ", p, 1, 1, 0, 0;\n}\n"                                                                              \
                 : __VA_ARGS__                                                                                        \
                 : "l"(a), "l"(b), "r"(static_cast<int>(adds)));                                                      \
  }
#define TENON_SHARED_OF(name, type)                                                                       \
  TENON_SHARED(name, type, "80", 10, TENON_TO_32 ", " TENON_EIGHT_4, "40", "41", "42", TENON_SUMS_8(0),   \
               TENON_SUMS_2(8))                                                                           \
  TENON_SHARED(name, type, "176", 22, TENON_TO_80 ", " TENON_EIGHT_10, "88", "89", "90", TENON_SUMS_8(0), \
               TENON_SUMS_8(8), TENON_SUMS_2(16), TENON_SUMS_2(18), TENON_SUMS_2(20))
TENON_SHARED_OF(bf16, "bf16")
TENON_SHARED_OF(f16, "f16")
TENON_HELD_OF(bf16, "bf16")
TENON_HELD_OF(f16, "f16")

}  // namespace tenon::device
#endif
