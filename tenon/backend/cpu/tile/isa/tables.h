// What the file of each instruction set exports: only its table.
#pragma once
#include "tenon/backend/cpu/tile/tile_ops.h"

namespace tenon::cpu {

/// TileOps::chunk_bytes: a quarter of a 1 MiB L2 cache; half of the 2 MiB that machines with AMX have.
inline constexpr int64_t kVectorChunk = 256 << 10, kAmxChunk = 1 << 20;

extern const TileOps kAvx2Ops, kAvx512Ops, kAvx512Bf16Ops;
/// What AVX-VNNI adds to kAvx2Ops.
void avx_vnni_gemm_i8(const TileArgs& args);
/// What AVX512-VNNI adds to kAvx512Ops.
void vnni_gemm_i8(const TileArgs& args);
/// What AMX adds to kAvx512Bf16Ops.
void amx_gemm_bf16(const TileArgs& args);
void amx_gemm_bf16_i8(const TileArgs& args);
void amx_enter();
void amx_leave();

}  // namespace tenon::cpu
