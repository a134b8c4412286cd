// Common code of attention with many queries and with one.
#pragma once
#include "tenon/backend/cpu/tile/attention.h"

namespace tenon::cpu {

/// Number of keys per block of scores, a multiple of a bf16 term. It determines the order in which rows are summed.
int64_t keys_at_once(int64_t sk, bool causal);

/// Rows of q, k or v in memory.
struct HeadRows {
  const void* data;
  DType type;
  int64_t ld;
  const void* at(int64_t row, int64_t col = 0) const {
    return static_cast<const std::byte*>(data) + (row * ld + col) * size_of(type);
  }
};
/// Finds rows of one page, d wide; computes them into `staging` (rows * round_up(d, 16) floats) if necessary.
HeadRows head_rows(const HeadSource& source, const HeadRange& range, int64_t d, float* staging, int thread);

/// log of the sum of e^score of a row, from the softmax kernel's results.
float log_sum_exp(float row_max, float row_sum);

/// True if there is one query per head, and few enough heads per kv head for one_query_attention.
bool has_one_query(const AttentionShape& shape);
int64_t one_query_scratch_bytes(const AttentionShape& shape, int threads);
/// attention() for has_one_query; gives a query the same bits as among others. The heads of a kv head form the rows of
/// a block; packed parts of k and v are multiplied while they are in the L1 cache.
void one_query_attention(ThreadPool& pool, const TileOps& ops, const AttentionArgs& args, void* scratch);

}  // namespace tenon::cpu
