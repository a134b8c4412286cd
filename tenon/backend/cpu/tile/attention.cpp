#include "tenon/backend/cpu/tile/attention.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tenon/backend/cpu/tile/attention_parts.h"
#include "tenon/backend/cpu/tile/product.h"
#include "tenon/core/error.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kKeyBlock = 256;         // approximate number of keys per block of scores
constexpr int64_t kQueryRows = kHeadRows;  // query rows per block: with 256 keys the fastest of 32..96 x 128..256
constexpr int64_t kPackRows = kHeadRows;   // rows of k and v packed per task
constexpr int64_t kGroupBytes = 16 << 20;  // most bytes of packed k and v in memory at once

// Sizes of the packed operands and of blocks. K is the B operand of the scores (columns: keys, K dimension: d), V that
// of the output (columns: d, K dimension: keys).
struct Plan {
  AttentionShape s;
  int64_t d_terms, key_terms;  // terms along d; along all keys
  int64_t key_panels, d_panels;
  int64_t keys;             // per block of scores
  int64_t q_blocks, group;  // kv heads packed at once
  int d_last;               // words of the last term along d

  explicit Plan(const AttentionShape& shape) : s(shape) {
    const int64_t per_term = term_elements(s.type);
    d_terms = div_up(s.d, per_term);
    key_terms = div_up(s.sk, per_term);
    key_panels = div_up(s.sk, kPanel);
    d_panels = div_up(s.d, kPanel);
    q_blocks = div_up(s.sq, kQueryRows);
    keys = keys_at_once(s.sk, s.causal);
    group = std::clamp<int64_t>(kGroupBytes / std::max<int64_t>(1, k_bytes() + v_bytes()), 1, s.batch * s.kv_heads);
  }
  int64_t k_bytes() const { return key_panels * d_terms * kBlock; }
  int64_t v_bytes() const { return d_panels * key_terms * kBlock; }
  int64_t score_ld() const { return keys + 16; }  // not a multiple of 512 bytes: spreads rows over the cache sets
  int64_t o_ld() const { return d_panels * kPanel; }
  int64_t o_alloc() const { return kQueryRows * o_ld(); }
};

// A thread's buffers.
struct Buffers {
  std::byte *q, *p;
  float *scores, *o, *row_max, *row_sum, *staging;
};

class AttentionWorkspace {
 public:
  AttentionWorkspace(const Plan& plan, int threads, void* scratch) {
    ScratchCursor cursor(scratch);
    k = cursor.take<std::byte>(plan.group * plan.k_bytes());
    v = cursor.take<std::byte>(plan.group * plan.v_bytes());
    offsets = cursor.take<int64_t>(plan.d_terms);
    p_offsets = cursor.take<int64_t>(plan.keys / 16);
    ScratchCursor one(nullptr);
    cut(plan, one);
    each_ = one.used();
    own_ = cursor.take<std::byte>(each_ * threads);
    bytes = cursor.used();
  }
  Buffers buffers(const Plan& plan, int thread) const {
    ScratchCursor cursor(own_ + thread * each_);
    return cut(plan, cursor);
  }

  std::byte *k, *v;
  int64_t *offsets, *p_offsets;
  int64_t bytes;

 private:
  static Buffers cut(const Plan& plan, ScratchCursor& cursor) {
    Buffers b;
    b.q = cursor.take<std::byte>(kQueryRows * plan.d_terms * kLine);
    b.p = cursor.take<std::byte>(kQueryRows * plan.keys / 16 * kLine);
    b.scores = cursor.take<float>(kQueryRows * plan.score_ld());
    b.o = cursor.take<float>(plan.o_alloc());
    b.row_max = cursor.take<float>(kQueryRows);
    b.row_sum = cursor.take<float>(kQueryRows);
    b.staging = cursor.take<float>(std::max(kQueryRows, kPackRows) * round_up(plan.s.d, 16));
    return b;
  }
  std::byte* own_;
  int64_t each_;
};

// The offset of row `row` of (b, h) from its first row.
int64_t row_start(const HeadSource& source, int64_t b, int64_t h, int64_t row) {
  const HeadPages& p = source.pages;
  if (p.rows == 0) return row * source.ld;
  const int64_t at = b * p.batch_stride + h * p.head_stride + row / p.rows * p.stride;
  const auto number = static_cast<int64_t>(load_element(p.type, p.numbers, at));
  TENON_CHECK(Numeric, number >= 0 && number < p.count, "attention")
      << "page " << number << ", expected 0.." << p.count - 1;
  return number * p.page_stride + row % p.rows * source.ld;
}

class Attention {
 public:
  Attention(ThreadPool& pool, const TileOps& ops, const AttentionArgs& args, void* scratch)
      : pool_(pool), ops_(ops), args_(args), plan_(args.shape), work_(plan_, pool.threads(), scratch) {
    for (int64_t t = 0; t < plan_.d_terms; ++t) work_.offsets[t] = t * kQueryRows * kLine;
    for (int64_t t = 0; t < plan_.keys / 16; ++t) work_.p_offsets[t] = t * kQueryRows * kLine;
  }

  void run() const {
    const AttentionShape& s = plan_.s;
    const int64_t kv_heads = s.batch * s.kv_heads, per_kv = s.heads / s.kv_heads;
    const int64_t pack_blocks = div_up(s.sk, kPackRows);
    for (int64_t first = 0; first < kv_heads; first += plan_.group) {
      const int64_t count = std::min(plan_.group, kv_heads - first);
      pool_.parallel_for(count * pack_blocks, [&](int64_t task, int thread) {
        pack_keys(first, task / pack_blocks, task % pack_blocks * kPackRows, thread);
      });
      const int64_t per_head = per_kv * plan_.q_blocks;
      pool_.parallel_for(count * per_head, [&](int64_t task, int thread) {
        const int64_t slot = task / per_head, rest = task % per_head;
        const TileScope scope(ops_);
        query_block(first + slot, slot, rest / plan_.q_blocks, rest % plan_.q_blocks * kQueryRows, thread);
      });
    }
  }

 private:
  int64_t keys_of(int64_t b) const { return args_.keys.empty() ? plan_.s.sk : args_.keys[static_cast<size_t>(b)]; }

  // Packs rows [row0, row0 + 64) of k and v of kv head `first + slot` into the slot's operands.
  void pack_keys(int64_t first, int64_t slot, int64_t row0, int thread) const {
    const AttentionShape& s = plan_.s;
    const int64_t b = (first + slot) / s.kv_heads, h = (first + slot) % s.kv_heads;
    const int64_t rows = std::min(kPackRows, keys_of(b) - row0);
    if (rows <= 0) return;
    const Buffers own = work_.buffers(plan_, thread);
    const HeadRows k = head_rows(args_.k, {b, h, row0, rows}, s.d, own.staging, thread);
    std::byte* k_to = work_.k + slot * plan_.k_bytes() + row0 / kPanel * plan_.d_terms * kBlock;
    for (int64_t i = 0; i < rows; i += kPanel, k_to += plan_.d_terms * kBlock) {
      const int cols = static_cast<int>(std::min<int64_t>(kPanel, rows - i));
      ops_.pack_panel({k.at(i), k.type, k.ld, s.d, cols, k_to, s.type});
    }
    const HeadRows v = head_rows(args_.v, {b, h, row0, rows}, s.d, own.staging, thread);
    const int64_t stride = plan_.key_terms * kBlock, first_term = row0 / term_elements(s.type);
    std::byte* v_to = work_.v + slot * plan_.v_bytes() + first_term * kBlock;
    ops_.pack_columns({v.data, v.type, v.ld, rows, s.d, v_to, s.type, stride});
  }

  void query_block(int64_t kv_head, int64_t slot, int64_t group_head, int64_t row0, int thread) const {
    const AttentionShape& s = plan_.s;
    const int64_t b = kv_head / s.kv_heads, h = kv_head % s.kv_heads * (s.heads / s.kv_heads) + group_head;
    const int rows = static_cast<int>(std::min(kQueryRows, s.sq - row0));
    const Buffers own = work_.buffers(plan_, thread);
    const HeadRows q = head_rows(args_.q, {b, h, row0, rows}, s.d, own.staging, thread);
    ops_.pack_rows({q.data, q.type, q.ld, rows, s.d, own.q, s.type, kLine, kQueryRows * kLine});
    const int64_t there = keys_of(b),
                  visible = s.causal ? std::clamp<int64_t>(row0 + rows + there - s.sq, 0, there) : there;
    // Whole terms of keys that none of these queries sees are left out: they would add zeros.
    const int64_t end = std::min(there, round_up(visible, term_elements(DType::BF16)));
    for (int64_t key0 = 0; key0 < visible; key0 += plan_.keys)
      key_block(own, slot, row0, rows, key0, static_cast<int>(std::min(plan_.keys, end - key0)), there);
    // Rows that see no key: 0 / 0.
    const int64_t blind = s.causal ? std::clamp<int64_t>(s.sq - there - row0, 0, rows) : there > 0 ? 0 : rows;
    std::fill_n(own.o, blind * plan_.o_ld(), 0.0f);
    std::fill_n(own.row_sum, blind, 0.0f);
    if (args_.lse)
      for (int r = 0; r < rows; ++r)
        args_.lse[(b * s.heads + h) * s.sq + row0 + r] = log_sum_exp(own.row_max[r], own.row_sum[r]);
    ops_.softmax_end(own.o, plan_.o_ld(), rows, static_cast<int>(s.d), own.row_sum);
    args_.out(b, h, row0, rows, own.o, plan_.o_ld(), thread);
  }

  // Adds what rows see of keys [key0, key0 + keys). `there`: the number of keys of the batch entry.
  void key_block(const Buffers& own, int64_t slot, int64_t row0, int rows, int64_t key0, int keys,
                 int64_t there) const {
    const AttentionShape& s = plan_.s;
    const int64_t k_stride = plan_.d_terms * kBlock;
    const std::byte* k = work_.k + slot * plan_.k_bytes() + key0 / kPanel * k_stride;
    ops_.gemm(s.type, {own.q, work_.offsets, kLine, k, k_stride, own.scores, plan_.score_ld(), plan_.d_terms, rows,
                       static_cast<int>(div_up(keys, kPanel)), false, last_words(s.d, s.type)});
    if (s.causal) mask(own.scores, row0 + there - s.sq - key0, rows, keys);
    const float to_log2 = s.scale * std::numbers::log2e_v<float>;
    ops_.softmax({own.scores, plan_.score_ld(), rows, keys, to_log2, own.row_max, own.row_sum, own.p, s.type,
                  kQueryRows * kLine, own.o, plan_.o_ld(), static_cast<int>(s.d), key0 == 0});
    const int64_t per_term = term_elements(s.type), v_stride = plan_.key_terms * kBlock;
    const std::byte* v = work_.v + slot * plan_.v_bytes() + key0 / per_term * kBlock;
    ops_.gemm(s.type, {own.p, work_.p_offsets, kLine, v, v_stride, own.o, plan_.o_ld(), div_up(keys, per_term), rows,
                       static_cast<int>(plan_.d_panels), key0 != 0, last_words(keys, s.type)});
  }

  // Hides keys > row + offset.
  void mask(float* scores, int64_t offset, int rows, int keys) const {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = std::max<int64_t>(0, r + offset + 1); j < keys; ++j)
        scores[r * plan_.score_ld() + j] = kHiddenScore;
  }

  ThreadPool& pool_;
  const TileOps& ops_;
  const AttentionArgs& args_;
  Plan plan_;
  AttentionWorkspace work_;
};

}  // namespace

// Keys per block. Causal attention always uses the same number, so that a row has the same bits with or without keys
// after it, and with a cache or a whole text. Otherwise blocks have equal sizes in whole terms, up to a quarter above
// kKeyBlock: with 257 keys, a block of 256 and one of a single key would rescale every sum for that key.
int64_t keys_at_once(int64_t sk, bool causal) {
  const int64_t blocks = std::max<int64_t>(1, sk / kKeyBlock), per_term = term_elements(DType::BF16);
  if (causal) return std::min(kKeyBlock, round_up(sk, per_term));
  const int64_t keys = round_up(div_up(sk, blocks), per_term);
  return keys <= kKeyBlock * 5 / 4 ? keys : round_up(div_up(sk, blocks + 1), per_term);
}

HeadRows head_rows(const HeadSource& source, const HeadRange& range, int64_t d, float* staging, int thread) {
  const auto [b, h, row0, rows] = range;
  if (source.data) {
    const int64_t first = b * source.batch_stride + h * source.head_stride + row_start(source, b, h, row0);
    return {static_cast<const std::byte*>(source.data) + first * size_of(source.type), source.type, source.ld};
  }
  const int64_t ld = round_up(d, 16);
  source.rows(b, h, row0, rows, staging, ld, thread);
  return {staging, DType::F32, ld};
}

float log_sum_exp(float row_max, float row_sum) {
  return ((row_sum == 0 ? 0 : row_max) + std::log2(row_sum)) * std::numbers::ln2_v<float>;
}

int64_t attention_scratch_bytes(const AttentionShape& shape, int threads) {
  if (has_one_query(shape)) return one_query_scratch_bytes(shape, threads);
  return AttentionWorkspace(Plan(shape), threads, nullptr).bytes;
}

void attention(ThreadPool& pool, const TileOps& ops, const AttentionArgs& args, void* scratch) {
  const AttentionShape& s = args.shape;
  TENON_CHECK(Internal, s.kv_heads > 0 && s.heads % s.kv_heads == 0, "attention")
      << "expected heads to be a multiple of kv_heads, got " << s.heads << " and " << s.kv_heads;
  TENON_CHECK(Internal, s.scale > 0 && s.d > 0 && s.sk > 0, "attention")
      << "expected scale, d and sk > 0, got " << s.scale << ", " << s.d << ", " << s.sk;
  if (s.batch <= 0 || s.sq <= 0) return;
  if (has_one_query(s)) return one_query_attention(pool, ops, args, scratch);
  Attention(pool, ops, args, scratch).run();
}

}  // namespace tenon::cpu
