// The table of a vector instruction set. Included only by the files of one instruction set, after its vec_*.h.
#pragma once
#include "tenon/backend/cpu/tile/isa/i8_kernels.h"
#include "tenon/backend/cpu/tile/isa/row_kernels.h"
#include "tenon/backend/cpu/tile/isa/tables.h"
#include "tenon/backend/cpu/tile/isa/winograd_kernels.h"

namespace tenon::cpu {
namespace {

/// `Bf16Dot` multiplies bf16 pairs, `I8Dot` bf16 by i8 columns, `BlockDot` bytes; `bf16_arithmetic` says whether
/// `Bf16Dot` is faster than f32.
template <class Bf16Dot, class I8Dot, class BlockDot>
constexpr TileOps vector_table(Isa isa, const char* name, bool bf16_arithmetic) {
  TileOps t{};
  t.isa = isa;
  t.name = name;
  t.bf16_arithmetic = bf16_arithmetic;
  t.chunk_bytes = kVectorChunk;
  t.one_stream = true;
  t.reads_rows = false;
  t.outruns_memory = false;
  t.enter = t.leave = no_tiles;
  t.gemm_bf16 = bf16_tiles<Bf16Dot>;
  t.gemm_bf16_i8 = gemm_tiles<I8Dot>;
  t.rows_in_passing = kRegisters == 32 && !bf16_arithmetic ? 32 : 16;
  t.gemm_i8 = i8_tiles<BlockDot>;
  t.gemm_f32 = gemm_tiles<DotF32>;
  t.gemm_f32_f16 = gemm_tiles<DotHalf>;
  t.pack_rows = pack_rows;
  t.pack_panel = pack_panel;
  t.pack_columns = pack_columns;
  t.widen = widen;
  t.widen_i8 = widen_i8;
  t.widen_e4m3 = widen_e4m3;
  t.narrow = narrow;
  t.softmax = softmax;
  t.softmax_end = softmax_end;
  t.winograd_input = winograd_input;
  t.winograd_output = winograd_output;
  return t;
}

}  // namespace
}  // namespace tenon::cpu
