// What each instruction set's file exports: its table, and nothing else.
#pragma once
#include "tenon/backend/cpu/tile/tile_ops.h"

namespace tenon::cpu {

/// B chunks of the vector kernels: a quarter of a 1 MiB second-level cache. They need few bytes per operation.
inline constexpr int64_t kVectorChunk = 256 << 10;
/// Of the AMX kernel: most of a 48 KiB first-level cache. With both operands from the second level it would wait. Taps
/// share their rows there, so their weights may come from the second level.
inline constexpr int64_t kAmxChunk = 32 << 10, kAmxTapChunk = 64 << 10;

extern const TileOps kAvx2Ops, kAvx512Ops, kAvx512Bf16Ops;
/// What AMX adds to kAvx512Bf16Ops.
void amx_gemm_bf16(const TileArgs& args);
void amx_enter();
void amx_leave();

}  // namespace tenon::cpu
