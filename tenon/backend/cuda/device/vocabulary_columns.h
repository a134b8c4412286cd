// Matrix products of a warpgroup on sm_90 of 16-bit operands of which one or both lie in columns: wgmma_columns
// (vocabulary_held.h) describes them. Part of vocabulary.h, for the kernels that include it.
#pragma once
#include "tenon/backend/cuda/device/elements.h"
#include "tenon/backend/cuda/device/vocabulary_held.h"

namespace tenon::device {

// ---- d[64, N] (+)= a[64, 16] b[N, 16], accumulated in f32: like the products of vocabulary_sm90.h, with kA and kB for
// operands in columns: 16 of K further is + 2048 bytes there, and + 32 bytes in rows.
DEV uint64_t columns_of(BF16, uint32_t address, int block_bytes) { return wgmma_columns(address, block_bytes); }
DEV uint64_t columns_of(F16, uint32_t address, int block_bytes) { return wgmma_columns(address, block_bytes); }
#ifndef TENON_DEVICE_ON_HOST
TENON_WGMMA_OF("bf16.bf16", bf16_a_in_columns, "k16", "1, 1, 1, 0")
TENON_WGMMA_OF("bf16.bf16", bf16_b_in_columns, "k16", "1, 1, 0, 1")
TENON_WGMMA_OF("bf16.bf16", bf16_in_columns, "k16", "1, 1, 1, 1")
TENON_WGMMA_OF("f16.f16", f16_a_in_columns, "k16", "1, 1, 1, 0")
TENON_WGMMA_OF("f16.f16", f16_b_in_columns, "k16", "1, 1, 0, 1")
TENON_WGMMA_OF("f16.f16", f16_in_columns, "k16", "1, 1, 1, 1")
template <bool kA, bool kB>
DEV void wgmma_in_columns(BF16, auto& d, uint64_t a, uint64_t b) {
  if constexpr (kA && kB)
    wgmma_bf16_in_columns(d, a, b, true);
  else if constexpr (kA)
    wgmma_bf16_a_in_columns(d, a, b, true);
  else
    wgmma_bf16_b_in_columns(d, a, b, true);
}
template <bool kA, bool kB>
DEV void wgmma_in_columns(F16, auto& d, uint64_t a, uint64_t b) {
  if constexpr (kA && kB)
    wgmma_f16_in_columns(d, a, b, true);
  else if constexpr (kA)
    wgmma_f16_a_in_columns(d, a, b, true);
  else
    wgmma_f16_b_in_columns(d, a, b, true);
}
#else
template <bool kA, bool kB, int kFragments>
DEV void wgmma_in_columns(BF16, float (&d)[kFragments][4], uint64_t a, uint64_t b) {
  host::machine->wgmma({d[0], 8 * kFragments, a, b, true, host::Element::BF16, nullptr, kB, kA});
}
template <bool kA, bool kB, int kFragments>
DEV void wgmma_in_columns(F16, float (&d)[kFragments][4], uint64_t a, uint64_t b) {
  host::machine->wgmma({d[0], 8 * kFragments, a, b, true, host::Element::F16, nullptr, kB, kA});
}
#endif

}  // namespace tenon::device
