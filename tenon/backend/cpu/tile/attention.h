// Attention with streaming softmax: softmax(scale * Q K^T) V, block by block, without the matrix of scores.
#pragma once
#include <cstdint>
#include <span>

#include "tenon/backend/cpu/tile/gemm.h"

namespace tenon::cpu {

/// Prologue: f32 rows [row0, row0 + rows) of batch entry b, head h, all of D, to dst (as RowsFn). Where sq is 1, rows
/// of q behind a head's are those of the next heads.
using HeadRowsFn =
    FunctionRef<void(int64_t b, int64_t h, int64_t row0, int64_t rows, float* dst, int64_t ld, int thread)>;
/// Epilogue: f32 rows [row0, row0 + rows) of batch entry b, query head h: o[rows][D] (may be overwritten);
/// where sq is 1, of the next heads too.
using HeadOutFn = FunctionRef<void(int64_t b, int64_t h, int64_t row0, int64_t rows, float* o, int64_t ld, int thread)>;

/// Rows that are asked for at a time: up to so many, from a multiple of it on.
inline constexpr int64_t kHeadRows = 64;

/// Pages of rows, whose numbers, 0 to count - 1, are i32 or i64 in memory: that of page i of (b, h) at element b *
/// batch_stride + h * head_stride + i * stride.
struct HeadPages {
  int64_t rows = 0, count = 0, page_stride = 0;  ///< rows: of a page, a multiple of kHeadRows or all; 0: no pages
  const void* numbers = nullptr;
  DType type = DType::I32;
  int64_t batch_stride = 0, head_stride = 0, stride = 0;
};

/// Rows of q, k or v: memory (f32, bf16 or f16; row s of (b, h) at element b * batch_stride + h * head_stride + s * ld,
/// or where there are pages the page's number * page_stride + s % rows * ld) or a hook.
struct HeadSource {
  const void* data = nullptr;
  DType type = DType::F32;
  int64_t batch_stride = 0, head_stride = 0, ld = 0;
  HeadRowsFn rows;
  HeadPages pages = {};
};

struct AttentionShape {
  int64_t batch = 1, heads = 1,
          kv_heads = 1;  ///< heads is a multiple of kv_heads; head h reads kv head h / (heads / kv_heads)
  int64_t sq = 0, sk = 0, d = 0;
  float scale = 1;
  bool causal = false;       ///< query i sees keys j <= i + n - sq, n the keys of its batch entry
  DType type = DType::BF16;  ///< arithmetic of both products: BF16 or F32 (sums and softmax are f32)
};

struct AttentionArgs {
  AttentionShape shape;
  HeadSource q, k, v;
  HeadOutFn out;
  float* lse = nullptr;                ///< [batch, heads, sq]: log of the sum of e^score of each row; none: not wanted
  std::span<const int64_t> keys = {};  ///< of each batch entry, 0..sk: the rows of k and v that there are; none: sk
};

/// Exact bytes of scratch that attention() needs.
int64_t attention_scratch_bytes(const AttentionShape& shape, int threads);
/// A row with no visible key, or any NaN among its scores, comes out as NaN. `scratch`: attention_scratch_bytes(...)
/// bytes, 64-byte aligned, any contents. The same bits whatever the number of threads.
void attention(ThreadPool& pool, const TileOps& ops, const AttentionArgs& args, void* scratch);

}  // namespace tenon::cpu
