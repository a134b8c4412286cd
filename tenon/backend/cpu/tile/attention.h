// Attention with streaming softmax: softmax(scale * Q K^T) V block by block, without storing the matrix of scores.
#pragma once
#include <cstdint>
#include <span>

#include "tenon/backend/cpu/tile/gemm.h"

namespace tenon::cpu {

/// Rows [row0, row0 + rows) of batch entry b, head h.
struct HeadRange {
  int64_t b, h, row0, rows;
};

/// Prologue: writes f32 rows [row0, row0 + rows) of batch entry b, head h, all of D, to dst (as RowsFn). If sq is 1,
/// rows of q beyond a head's are those of the next heads.
using HeadRowsFn =
    FunctionRef<void(int64_t b, int64_t h, int64_t row0, int64_t rows, float* dst, int64_t ld, int thread)>;
/// Epilogue: f32 rows [row0, row0 + rows) of batch entry b, query head h: o[rows][D] (may be overwritten); if sq is 1,
/// also of the next heads.
using HeadOutFn = FunctionRef<void(int64_t b, int64_t h, int64_t row0, int64_t rows, float* o, int64_t ld, int thread)>;

/// Most rows requested at a time; requests start at a multiple of it.
inline constexpr int64_t kHeadRows = 64;

/// Pages of rows. Page numbers, 0 to count - 1, are i32 or i64 in memory; that of page i of (b, h) is at element
/// b * batch_stride + h * head_stride + i * stride.
struct HeadPages {
  int64_t rows = 0, count = 0, page_stride = 0;  ///< rows: per page, a multiple of kHeadRows or all; 0: no pages
  const void* numbers = nullptr;
  DType type = DType::I32;
  int64_t batch_stride = 0, head_stride = 0, stride = 0;
};

/// Rows of q, k or v: memory (f32, bf16 or f16; row s of (b, h) at element b * batch_stride + h * head_stride + s * ld
/// or, with pages, at page number * page_stride + s % rows * ld) or a callback.
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
  bool causal = false;       ///< query i sees keys j <= i + n - sq, n the number of keys of its batch entry
  DType type = DType::BF16;  ///< arithmetic of both products: BF16 or F32 (sums and softmax are f32)
};

struct AttentionArgs {
  AttentionShape shape;
  HeadSource q, k, v;
  HeadOutFn out;
  float* lse = nullptr;                ///< [batch, heads, sq]: log of the sum of e^score of each row; null: not wanted
  std::span<const int64_t> keys = {};  ///< per batch entry, 0..sk: how many rows of k and v exist; empty: sk
};

/// Exact scratch bytes that attention() needs.
int64_t attention_scratch_bytes(const AttentionShape& shape, int threads);
/// A row with no visible key, or with NaN among its scores, yields NaN. `scratch`: attention_scratch_bytes(...) bytes,
/// 64-byte aligned, any contents. The bits do not depend on the number of threads.
void attention(ThreadPool& pool, const TileOps& ops, const AttentionArgs& args, void* scratch);

}  // namespace tenon::cpu
