// Warpgroup matrix products on sm_90 with one or both 16-bit operands stored transposed (MN-major), as wgmma_columns
// (vocabulary_held.h) describes them. Part of vocabulary.h, for the kernels that include it.
#pragma once
#include "tenon/backend/cuda/device/elements.h"
#include "tenon/backend/cuda/device/vocabulary_held.h"

namespace tenon::device {

// ---- d[64, N] (+)= a[64, 16] b[N, 16], accumulated in f32, like the products of vocabulary_sm90.h. kA and kB: that
// operand is transposed; 16 further along K is + 2048 bytes there, + 32 bytes otherwise.
#ifndef TENON_DEVICE_ON_HOST
#define TENON_IN_COLUMNS(T, types, name)                                            \
  TENON_WGMMA_OF(types, name##_a_in_columns, "k16", "1, 1, 1, 0")                   \
  TENON_WGMMA_OF(types, name##_b_in_columns, "k16", "1, 1, 0, 1")                   \
  TENON_WGMMA_OF(types, name##_in_columns, "k16", "1, 1, 1, 1")                     \
  template <bool kA, bool kB>                                                       \
  DEV void wgmma_in_columns(T, auto& d, uint64_t a, uint64_t b, bool adds = true) { \
    if constexpr (kA && kB)                                                         \
      wgmma_##name##_in_columns(d, a, b, adds);                                     \
    else if constexpr (kA)                                                          \
      wgmma_##name##_a_in_columns(d, a, b, adds);                                   \
    else                                                                            \
      wgmma_##name##_b_in_columns(d, a, b, adds);                                   \
  }                                                                                 \
  DEV uint64_t columns_of(T, uint32_t address, int block_bytes) { return wgmma_columns(address, block_bytes); }
#else
#define TENON_IN_COLUMNS(T, types, name)                                                             \
  template <bool kA, bool kB, int kFragments>                                                        \
  DEV void wgmma_in_columns(T, float(&d)[kFragments][4], uint64_t a, uint64_t b, bool adds = true) { \
    host::machine->wgmma({d[0], 8 * kFragments, a, b, adds, host::Element::T, nullptr, kB, kA});     \
  }                                                                                                  \
  DEV uint64_t columns_of(T, uint32_t address, int block_bytes) { return wgmma_columns(address, block_bytes); }
#endif
TENON_IN_COLUMNS(BF16, "bf16.bf16", bf16)
TENON_IN_COLUMNS(F16, "f16.f16", f16)

}  // namespace tenon::device
