// What attention of many queries and of one share.
#pragma once
#include "tenon/backend/cpu/tile/attention.h"

namespace tenon::cpu {

/// Keys of a block of scores: a multiple of the terms of bf16. It fixes in which order rows are summed.
int64_t keys_at_once(int64_t sk, bool causal);

/// Rows of q, k or v as memory.
struct HeadRows {
  const void* data;
  DType type;
  int64_t ld;
  const void* at(int64_t row, int64_t col = 0) const {
    return static_cast<const std::byte*>(data) + (row * ld + col) * size_of(type);
  }
};
/// Rows [row0, row0 + rows) of (b, h), of one page, computed into `staging` (rows * round_up(d, 16) floats) if need be.
HeadRows head_rows(const HeadSource& source, int64_t b, int64_t h, int64_t row0, int64_t rows, int64_t d,
                   float* staging, int thread);

/// log of the sum of e^score of a row, from what the softmax kernel leaves.
float log_sum_exp(float row_max, float row_sum);

/// Whether there is one query a head, and few enough heads to a kv head, for one_query_attention.
bool has_one_query(const AttentionShape& shape);
int64_t one_query_scratch_bytes(const AttentionShape& shape, int threads);
/// attention() where has_one_query: the same bits as that query has among others. The heads of a kv head are the rows
/// of a block; what is packed of k and v is multiplied while it is in the first-level cache.
void one_query_attention(ThreadPool& pool, const TileOps& ops, const AttentionArgs& args, void* scratch);

}  // namespace tenon::cpu
