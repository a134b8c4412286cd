// Streaming-softmax attention in f32 on the CUDA cores, y = softmax(scale q k^T) v for each head: AttentionSizes, heads
// of any depth up to 512.
//
//   q     global --cp.async--> shared, once
//   k, v  global --cp.async, slabs of 64 keys by kSlab columns, one ahead--> shared
//   scores in registers --mask, streaming softmax--> weights --shared, within a warp--> times v --> sums in registers
//   sums --shared, over the queries--> the epilogue
//
// A block's rows are those that share a head of keys, a group's heads times their queries, so that a token's heads read
// its keys once. Many rows: the warps share each chunk of 64 keys. Few rows (kFew): each warp takes a chunk of its own,
// as many chunks in a turn as there are warps, whose results the block then joins in order.
//
// A row's bits do not depend on the tile, on other rows or on the batch, so that a token over a cache has the bits of
// its row in a whole text: a score is a sum over ascending columns; a chunk's weights are relative to the highest score
// up to this chunk; their sum is that of pairs 32 keys apart, then 16, .., 1; a chunk's weighted values are added key
// by key; and chunks are added in order, after the sums so far have been rescaled. Chunks that a row does not see add
// zeros.
//
// grid.x = tiles of rows, grid.y = heads of keys, grid.z = batch; Tile::kThreads, Tile::kSharedBytes. Params has a
// member `sizes`; Q, K, V are operands with rows in memory and fragments of 16 bytes, or functors with eval(p, row,
// column) of up to 4 columns; Epilogue has one lane and up to 4 columns. A NaN reaches the results of all rows that see
// it; one in v also other rows of a tile that sees it.
#pragma once
#include "tenon/backend/cuda/device/attention/attention_simt_tile.h"

namespace tenon::device {

/// The slabs of keys and values in the order in which a team uses them, one ahead.
template <class Tile, class K, class V, class Params>
struct SimtStream {
  const Params& p;
  const SimtPlace& at;
  int stride;  ///< from a team's chunk to its next
  int stage = 0;

  /// Starts copying slab `slab` of a chunk's keys, then values, to the stage that is not in use.
  DEV void copy(int chunk, int slab) const {
    if (slab == 2 * Tile::kSlabs) slab = 0, chunk += stride;
    const int key = chunk * Tile::kKeys, there = at.keys - key, row = at.kv_row + key;
    const int depth = p.sizes.depth;
    float* const to = Tile::stage(stage ^ 1);
    if (chunk < at.chunks) {
      if (slab < Tile::kSlabs)
        simt_copy<K, Tile::kKeys, Tile::kSlab, Tile::kLine, Tile::kTeam>(p, row, there, slab * Tile::kSlab, depth, to);
      else
        simt_copy<V, Tile::kKeys, Tile::kSlab, Tile::kLine, Tile::kTeam>(
            p, row, there, (slab - Tile::kSlabs) * Tile::kSlab, depth, to);
    }
    cp_async_commit();
  }
  /// Waits for a slab, whose successor's copies then start.
  DEV const float* next(int chunk, int slab) {
    cp_async_wait<0>();
    Tile::sync_team();  // the slab is complete, and all have read its predecessor
    stage ^= 1;
    copy(chunk, slab + 1);
    return Tile::stage(stage);
  }
};

/// The scores of a chunk.
template <class Tile, class Stream>
DEV void simt_score(SimtScores<Tile>& scores, Stream& stream, int chunk, float scale) {
  const float* q = Tile::shared() + Tile::row() * Tile::kQueryLine;
  NO_UNROLL for (int slab = 0; slab < Tile::kSlabs; ++slab) {
    const float* k = stream.next(chunk, slab);
    scores.add(q + slab * Tile::kSlab, k + lane() % Tile::kLanes * Tile::kLine);
  }
  scores.finish(stream.at, scale, chunk * Tile::kKeys);
}

/// Starts copying the block's queries, and each team's first slab.
template <class Tile, class Q, class Stream, class Params>
DEV void simt_begin(const Params& p, const SimtPlace& at, const Stream& stream, int chunk) {
  if (at.chunks == 0) return;
  simt_copy<Q, Tile::kRows, Tile::kDepth, Tile::kQueryLine, Tile::kThreads>(p, at.q_row + at.first, at.end - at.first,
                                                                            0, p.sizes.depth, Tile::shared());
  stream.copy(chunk, 0);
}

template <class Lse, class Params>
DEV void simt_store_lse(const Params& p, const SimtPlace& at, int row, float top, float total) {
  if (at.first + row < at.end)
    Lse::store(p, at.q_row + at.first + row, total == 0 ? minus_infinity() : top + logf(total));
}

/// Many rows: leaves their results where the queries were.
template <class Tile, class Q, class K, class V, class Lse, class Params>
DEV void simt_attend(const Params& p, const SimtPlace& at, float scale) {
  constexpr int kRows = Tile::kThreadRows, kColumns = Tile::kThreadColumns;
  float out[Tile::kSlabs][kRows][kColumns] = {}, top[kRows], total[kRows] = {};
  UNROLL for (int i = 0; i < kRows; ++i) top[i] = minus_infinity();
  SimtStream<Tile, K, V, Params> stream{p, at, 1};
  simt_begin<Tile, Q>(p, at, stream, 0);
  NO_UNROLL for (int chunk = 0; chunk < at.chunks; ++chunk) {
    float keep[kRows];
    {
      SimtScores<Tile> scores;
      simt_score(scores, stream, chunk, scale);
      UNROLL for (int i = 0; i < kRows; ++i) {
        const float next = max_or_nan(top[i], scores.highest(i)), zero = simt_zero(next);
        const float sum = scores.weigh(i, zero);
        keep[i] = expf(top[i] - zero);
        top[i] = next;
        total[i] = fused_multiply_add(total[i], keep[i], sum);
      }
      scores.store_weights(Tile::weights());
    }
    UNROLL for (int slab = 0; slab < Tile::kSlabs; ++slab) {
      const float* values = stream.next(chunk, Tile::kSlabs + slab);
      SimtSums<Tile> sums;
      sums.add(Tile::weights(), values, at.seen_in(chunk));
      UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int c = 0; c < kColumns; ++c) out[slab][i][c] =
          fused_multiply_add(out[slab][i][c], keep[i], sums.v[i][c]);
    }
  }
  // The queries are no longer read: other warps have passed a barrier since.
  UNROLL for (int i = 0; i < kRows; ++i) {
    const int row = Tile::row() + 4 * i;
    UNROLL for (int slab = 0; slab < Tile::kSlabs; ++slab) UNROLL for (int c = 0; c < kColumns; ++c)
        Tile::shared()[row * Tile::kQueryLine + slab * Tile::kSlab + Tile::column(c)] = out[slab][i][c] / total[i];
    if constexpr (Lse::kWanted)
      if (lane() % Tile::kLanes == 0) simt_store_lse<Lse>(p, at, row, top[i], total[i]);
  }
}

/// The results of few rows while a block joins chunks: a thread has columns lane, lane + kStride, .. of one row.
template <class Tile>
struct SimtJoined {
  static constexpr int kStride = Tile::kThreads / Tile::kRows, kColumns = (Tile::kDepth + kStride - 1) / kStride;
  float out[kColumns] = {}, top = minus_infinity(), total = 0;

  DEV static int row() { return thread_index() / kStride; }
  DEV static int first() { return thread_index() % kStride; }
  DEV static bool has(int i) { return Tile::kDepth % kStride == 0 || first() + i * kStride < Tile::kDepth; }

  /// Adds a turn's `chunks`, whose highest scores are at `tops`.
  DEV void add(int chunks, const float* tops) {
    NO_UNROLL for (int chunk = 0; chunk < chunks; ++chunk) {
      const int at = chunk * Tile::kRows + row();
      const float next = max_or_nan(top, tops[at]), keep = expf(top - simt_zero(next));
      const float* part = Tile::shared() + Tile::kPartsAt + at * Tile::kDepth + first();
      top = next;
      total = fused_multiply_add(total, keep, Tile::shared()[Tile::kTotalsAt + at]);
      UNROLL for (int i = 0; i < kColumns; ++i) if (has(i)) out[i] =
          fused_multiply_add(out[i], keep, part[i * kStride]);
    }
  }
};

/// Few rows: leaves their results where the queries were.
template <class Tile, class Q, class K, class V, class Lse, class Params>
DEV void simt_attend_few(const Params& p, const SimtPlace& at, float scale) {
  constexpr int kRows = Tile::kThreadRows;
  SimtJoined<Tile> joined;
  float before[kRows];  // the highest scores of earlier turns
  UNROLL for (int i = 0; i < kRows; ++i) before[i] = minus_infinity();
  SimtStream<Tile, K, V, Params> stream{p, at, Tile::kWarps};
  simt_begin<Tile, Q>(p, at, stream, warp());
  cp_async_wait<0>();
  sync_block();  // the queries are complete
  NO_UNROLL for (int turn = 0; turn < at.chunks; turn += Tile::kWarps) {
    const int chunk = turn + warp(), chunks = at.chunks - turn < Tile::kWarps ? at.chunks - turn : Tile::kWarps;
    // Two sets of highest scores: when one is written again, all have read it.
    float* const tops = Tile::shared() + Tile::kTopsAt + turn / Tile::kWarps % 2 * Tile::kWarps * Tile::kRows;
    SimtScores<Tile> scores;
    if (chunk < at.chunks) {
      simt_score(scores, stream, chunk, scale);
      UNROLL for (int i = 0; i < kRows; ++i) tops[warp() * Tile::kRows + Tile::row() + 4 * i] = scores.highest(i);
    }
    sync_block();
    UNROLL for (int i = 0; i < kRows; ++i) {
      const int row = Tile::row() + 4 * i;
      float mine = before[i];
      NO_UNROLL for (int w = 0; w < chunks; ++w) {
        before[i] = max_or_nan(before[i], tops[w * Tile::kRows + row]);
        if (w == warp()) mine = before[i];
      }
      if (chunk >= at.chunks) continue;
      Tile::shared()[Tile::kTotalsAt + warp() * Tile::kRows + row] = scores.weigh(i, simt_zero(mine));
    }
    if (chunk < at.chunks) {
      scores.store_weights(Tile::weights());
      float* const parts = Tile::shared() + Tile::kPartsAt + (warp() * Tile::kRows + Tile::row()) * Tile::kDepth;
      NO_UNROLL for (int slab = 0; slab < Tile::kSlabs; ++slab) {
        const float* values = stream.next(chunk, Tile::kSlabs + slab);
        SimtSums<Tile> sums;
        sums.add(Tile::weights(), values, at.seen_in(chunk));
        UNROLL for (int i = 0; i < kRows; ++i) UNROLL for (int c = 0; c < Tile::kThreadColumns; ++c)
            parts[i * 4 * Tile::kDepth + slab * Tile::kSlab + Tile::column(c)] = sums.v[i][c];
      }
    }
    sync_block();
    joined.add(chunks, tops);
  }
  UNROLL for (int i = 0; i < joined.kColumns; ++i) if (joined.has(i))
      Tile::shared()[joined.row() * Tile::kQueryLine + joined.first() + i * joined.kStride] =
          joined.out[i] / joined.total;
  if constexpr (Lse::kWanted)
    if (joined.first() == 0) simt_store_lse<Lse>(p, at, joined.row(), joined.top, joined.total);
}

/// Passes the block's results to the epilogue, eight threads per row.
template <class Tile, class Epilogue, class Params>
DEV void simt_store(const Params& p, const SimtPlace& at) {
  constexpr int kWidth = Epilogue::kWidth;
  for (int row = thread_index() / 8; at.first + row < at.end; row += Tile::kThreads / 8)
    for (int col = thread_index() % 8 * kWidth; col < p.sizes.depth; col += 8 * kWidth) {
      const Frag<float, kWidth> acc[1] = {load<float, kWidth>(Tile::shared() + row * Tile::kQueryLine + col)};
      const int to = at.q_row + at.first + row;
      Epilogue::store(p, to, col, Epilogue::compute(p, to, col, acc));
    }
}

/// Keys: count(p, batch) of a batch entry, if it is not in the sizes. Lse: store(p, row, value), if wanted.
template <class Tile, class Q, class K, class V, class Epilogue, class Keys = AllKeys, class Lse = NoLse, class Params>
DEV void attention_simt(const Params& p) {
  static_assert(Epilogue::kLanes == 1 && Epilogue::kWidth <= 4);
  griddep_wait();
  griddep_launch();
  const AttentionSizes s = sizes_of_entry<Keys>(p, block_z());
  const SimtPlace at(s, Tile::kRows);
  if constexpr (Tile::kFew)
    simt_attend_few<Tile, Q, K, V, Lse>(p, at, s.scale);
  else
    simt_attend<Tile, Q, K, V, Lse>(p, at, s.scale);
  sync_block();
  simt_store<Tile, Epilogue>(p, at);
}

}  // namespace tenon::device
