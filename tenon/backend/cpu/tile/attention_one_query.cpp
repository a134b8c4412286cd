// Attention with one query per head: a token after a cache. Reads k and v once, in place.
#include <algorithm>
#include <numbers>

#include "tenon/backend/cpu/tile/attention_parts.h"
#include "tenon/backend/cpu/tile/product.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kChunk = kHeadRows;  // keys packed at once; page sizes are multiples of it
constexpr int64_t kSlotsOfThread = 4;  // with fewer kv heads per thread, threads share them

// A slot is a kv head of a batch entry; its rows are the query heads that read it.
struct Sizes {
  AttentionShape s;
  int64_t slots, rows, lines, keys;  // lines: rows, padded; keys: per block
  int64_t d_terms, key_terms, d_panels, score_ld, o_ld, packed_bytes;
  bool shared;  // threads share slots; scores and sums of all slots are then in memory at once

  Sizes(const AttentionShape& shape, int threads) : s(shape) {
    const int64_t per_term = term_elements(s.type);
    slots = s.batch * s.kv_heads;
    rows = s.heads / s.kv_heads;
    lines = round_up(rows, 16);
    keys = keys_at_once(s.sk, s.causal);
    d_terms = div_up(s.d, per_term);
    key_terms = div_up(keys, per_term);
    d_panels = div_up(s.d, kPanel);
    score_ld = round_up(s.sk, kChunk) + 16;  // not a multiple of 512 bytes: spreads rows over the cache sets
    o_ld = d_panels * kPanel;
    packed_bytes = kBlock * std::max(kChunk / kPanel * d_terms, kChunk / per_term * d_panels);
    shared = threads > 1 && slots < kSlotsOfThread * threads;
  }
};

// Buffers of a thread.
struct Own {
  std::byte *q, *p, *packed;
  float* staging;
  float *row_max, *row_sum;
};
// Buffers of a slot.
struct Rows {
  float *scores, *o;
};

class Workspace {
 public:
  Workspace(const Sizes& z, int threads, void* scratch) {
    ScratchCursor cursor(scratch);
    q_off = cursor.take<int64_t>(z.d_terms);
    p_off = cursor.take<int64_t>(z.key_terms);
    ScratchCursor one(nullptr), slot(nullptr);
    cut(z, one);
    cut_rows(z, slot);
    own_bytes_ = one.used();
    rows_bytes_ = slot.used();
    own_ = cursor.take<std::byte>(own_bytes_ * threads);
    rows_ = cursor.take<std::byte>(rows_bytes_ * (z.shared ? z.slots : threads));
    bytes = cursor.used();
  }
  Own own(const Sizes& z, int thread) const {
    ScratchCursor cursor(own_ + thread * own_bytes_);
    return cut(z, cursor);
  }
  Rows rows(const Sizes& z, int64_t slot, int thread) const {
    ScratchCursor cursor(rows_ + (z.shared ? slot : thread) * rows_bytes_);
    return cut_rows(z, cursor);
  }

  int64_t *q_off, *p_off;
  int64_t bytes;

 private:
  static Own cut(const Sizes& z, ScratchCursor& cursor) {
    Own b;
    b.q = cursor.take<std::byte>(z.lines * z.d_terms * kLine);
    b.p = cursor.take<std::byte>(z.lines * z.key_terms * kLine);
    b.packed = cursor.take<std::byte>(z.packed_bytes);
    b.staging = cursor.take<float>(std::max(kChunk, z.rows) * round_up(z.s.d, 16));
    b.row_max = cursor.take<float>(z.rows);
    b.row_sum = cursor.take<float>(z.rows);
    return b;
  }
  static Rows cut_rows(const Sizes& z, ScratchCursor& cursor) {
    Rows r;
    r.scores = cursor.take<float>(z.rows * z.score_ld);
    r.o = cursor.take<float>(z.rows * z.o_ld);
    return r;
  }
  std::byte *own_, *rows_;
  int64_t own_bytes_, rows_bytes_;
};

class OneQuery {
 public:
  OneQuery(ThreadPool& pool, const TileOps& ops, const AttentionArgs& args, void* scratch)
      : pool_(pool), ops_(ops), args_(args), z_(args.shape, pool.threads()), work_(z_, pool.threads(), scratch) {
    for (int64_t t = 0; t < z_.d_terms; ++t) work_.q_off[t] = t * z_.lines * kLine;
    for (int64_t t = 0; t < z_.key_terms; ++t) work_.p_off[t] = t * z_.lines * kLine;
  }

  void run() const {
    if (z_.shared) return run_shared();
    pool_.parallel_for(z_.slots, [&](int64_t slot, int thread) {
      const TileScope scope(ops_);
      scores(slot, 0, keys_of(slot), thread);
      values(slot, 0, z_.d_panels, thread);
      hand_over(slot, thread);
    });
  }

 private:
  // Threads divide a slot's keys, then its columns, each of which is a sum over all keys.
  void run_shared() const {
    const int64_t parts = std::min<int64_t>(pool_.threads(), div_up(z_.s.sk, kChunk));
    pool_.parallel_for(z_.slots * parts, [&](int64_t task, int thread) {
      const TileScope scope(ops_);
      const int64_t slot = task / parts, part = task % parts, chunks = div_up(keys_of(slot), kChunk);
      scores(slot, part * chunks / parts * kChunk, std::min(keys_of(slot), (part + 1) * chunks / parts * kChunk),
             thread);
    });
    const int64_t columns = args_.v.data ? std::min<int64_t>(pool_.threads(), z_.d_panels) : 1;
    pool_.parallel_for(z_.slots * columns, [&](int64_t task, int thread) {
      const TileScope scope(ops_);
      const int64_t part = task % columns;
      values(task / columns, part * z_.d_panels / columns, (part + 1) * z_.d_panels / columns, thread);
    });
    for (int64_t slot = 0; slot < z_.slots; ++slot) hand_over(slot, 0);
  }

  int64_t keys_of(int64_t slot) const {
    return args_.keys.empty() ? z_.s.sk : args_.keys[static_cast<size_t>(slot / z_.s.kv_heads)];
  }
  int64_t first_head(int64_t slot) const { return slot % z_.s.kv_heads * z_.rows; }

  // Prefetches columns [col, col + cols) of up to kChunk rows from `key` on, before `end`, while other rows are
  // computed: the rows of a head are interleaved with those of others, which no hardware prefetcher follows.
  static void fetch(const HeadSource& source, int64_t b, int64_t h, int64_t key, int64_t end, int64_t col,
                    int64_t cols) {
    if (!source.data || key >= end) return;
    const HeadRows rows = head_rows(source, {b, h, key, 0}, 0, nullptr, 0);
    const int64_t count = std::min(kChunk - key % kChunk, end - key), bytes = cols * size_of(rows.type);
    for (int64_t r = 0; r < count; ++r)
      for (int64_t at = 0; at < bytes; at += kLine)
        __builtin_prefetch(static_cast<const std::byte*>(rows.at(r, col)) + at);
  }

  // Scores of keys [begin, end), and hidden ones from the last key to the end of a term.
  void scores(int64_t slot, int64_t begin, int64_t end, int thread) const {
    const AttentionShape& s = z_.s;
    const int64_t b = slot / s.kv_heads, h = first_head(slot);
    const Own own = work_.own(z_, thread);
    const Rows out = work_.rows(z_, slot, thread);
    fetch(args_.k, b, slot % s.kv_heads, begin, end, 0, s.d);
    HeadRows q = head_rows(args_.q, {b, h, 0, z_.rows}, s.d, own.staging, thread);
    if (args_.q.data) q.ld = args_.q.head_stride;
    ops_.pack_rows({q.data, q.type, q.ld, z_.rows, s.d, own.q, s.type, kLine, z_.lines * kLine});
    const int64_t stride = z_.d_terms * kBlock;
    for (int64_t key = begin; key < end; key += kChunk) {
      const int64_t count = std::min(kChunk, end - key);
      fetch(args_.k, b, slot % s.kv_heads, key + count, end, 0, s.d);
      const HeadRows k = head_rows(args_.k, {b, slot % s.kv_heads, key, count}, s.d, own.staging, thread);
      for (int64_t i = 0; i < count; i += kPanel)
        ops_.pack_panel({k.at(i), k.type, k.ld, s.d, static_cast<int>(std::min<int64_t>(kPanel, count - i)),
                         own.packed + i / kPanel * stride, s.type});
      ops_.gemm(s.type,
                {own.q, work_.q_off, kLine, own.packed, stride, out.scores + key, z_.score_ld, z_.d_terms,
                 static_cast<int>(z_.rows), static_cast<int>(div_up(count, kPanel)), false, last_words(s.d, s.type)});
    }
    if (end == keys_of(slot))
      for (int64_t r = 0; r < z_.rows; ++r)
        for (int64_t j = end; j % 32 != 0; ++j) out.scores[r * z_.score_ld + j] = kHiddenScore;
  }

  // Sums for the columns of panels [panel, panels_end); threads that share a slot recompute its keys' weights.
  void values(int64_t slot, int64_t panel, int64_t panels_end, int thread) const {
    const AttentionShape& s = z_.s;
    const int64_t b = slot / s.kv_heads, keys = keys_of(slot), col = panel * kPanel;
    const int64_t cols = std::min(s.d, panels_end * kPanel) - col;
    const int panels = static_cast<int>(panels_end - panel), rows = static_cast<int>(z_.rows);
    const Own own = work_.own(z_, thread);
    const Rows out = work_.rows(z_, slot, thread);
    fetch(args_.v, b, slot % s.kv_heads, 0, keys, col, cols);
    const float to_log2 = s.scale * std::numbers::log2e_v<float>;
    for (int64_t block = 0; block < keys; block += z_.keys) {
      const int64_t end = std::min(keys, block + z_.keys);
      ops_.softmax({out.scores + block, z_.score_ld, rows, static_cast<int>(round_up(end - block, 32)), to_log2,
                    own.row_max, own.row_sum, own.p, s.type, z_.lines * kLine, out.o + col, z_.o_ld,
                    static_cast<int>(cols), block == 0});
      for (int64_t key = block, count = 0; key < end; key += count) {
        count = std::min(kChunk - key % kChunk, end - key);
        fetch(args_.v, b, slot % s.kv_heads, key + count, keys, col, cols);
        add_values(own, {b, slot % s.kv_heads, key, count}, col, cols, out.o + col, thread);
      }
    }
    if (keys == 0) {  // 0 / 0
      for (int64_t r = 0; r < rows; ++r) std::fill_n(out.o + r * z_.o_ld + col, panels * kPanel, 0.0f);
      std::fill_n(own.row_sum, rows, 0.0f);
    }
    ops_.softmax_end(out.o + col, z_.o_ld, rows, static_cast<int>(cols), own.row_sum);
    if (args_.lse && panel == 0)
      for (int64_t r = 0; r < rows; ++r)
        args_.lse[b * s.heads + first_head(slot) + r] = log_sum_exp(own.row_max[r], own.row_sum[r]);
  }

  // o += p * v for these keys and columns [col, col + cols); o = p * v for the first keys.
  void add_values(const Own& own, const HeadRange& keys, int64_t col, int64_t cols, float* o, int thread) const {
    const AttentionShape& s = z_.s;
    const HeadRows v = head_rows(args_.v, keys, s.d, own.staging, thread);
    const int64_t per_term = term_elements(s.type), terms = div_up(keys.rows, per_term), stride = terms * kBlock;
    const std::byte* p = own.p + keys.row0 % z_.keys / per_term * z_.lines * kLine;
    ops_.pack_columns({v.at(0, col), v.type, v.ld, keys.rows, cols, own.packed, s.type, stride});
    ops_.gemm(s.type, {p, work_.p_off, kLine, own.packed, stride, o, z_.o_ld, terms, static_cast<int>(z_.rows),
                       static_cast<int>(div_up(cols, kPanel)), keys.row0 > 0, last_words(keys.rows, s.type)});
  }

  void hand_over(int64_t slot, int thread) const {
    args_.out(slot / z_.s.kv_heads, first_head(slot), 0, z_.rows, work_.rows(z_, slot, thread).o, z_.o_ld, thread);
  }

  ThreadPool& pool_;
  const TileOps& ops_;
  const AttentionArgs& args_;
  Sizes z_;
  Workspace work_;
};

}  // namespace

bool has_one_query(const AttentionShape& s) { return s.sq == 1 && s.heads / s.kv_heads <= kHeadRows; }

int64_t one_query_scratch_bytes(const AttentionShape& shape, int threads) {
  return Workspace(Sizes(shape, threads), threads, nullptr).bytes;
}

void one_query_attention(ThreadPool& pool, const TileOps& ops, const AttentionArgs& args, void* scratch) {
  OneQuery(pool, ops, args, scratch).run();
}

}  // namespace tenon::cpu
