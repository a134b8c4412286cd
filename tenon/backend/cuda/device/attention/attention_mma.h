// Streaming-softmax attention with mma, y = softmax(scale q k^T) v for each head: AttentionSizes, scale > 0.
//
//   q     global --cp.async--> shared --ldmatrix--> registers, once (if they do not fit, again for each tile)
//   k, v  global --cp.async, kStages tiles of kKeys rows deep--> shared --ldmatrix, v transposed--> registers
//   scores --mask, streaming softmax--> weights, rounded to T --mma--> sums --shared--> the epilogue
//
// Scores and weights never leave their warp's registers. Heads deeper than kMaxShallow hold neither their queries nor
// a whole tile of keys: a block computes kValueColumns columns of the result, and k and v stream through shared memory
// in blocks of 64 columns. Other blocks recompute the same scores for the other columns.
//
// grid.x = tiles of queries * parts of the value columns, grid.y = heads, grid.z = batch; Tile::kThreads,
// Tile::kSharedBytes. Params has a member `sizes`; Q, K, V are operands of one element type with kWidth = 8 and one row
// per token and head; Epilogue (one lane) gets the rows of Q. A NaN reaches the results of all queries that see it;
// under a causal mask, a NaN in v also reaches other queries of the same tile, because keys they do not see are
// multiplied by 0.
#pragma once
#include "tenon/backend/cuda/device/attention/attention_tile.h"

namespace tenon::device {
/// Heads that are not deep: whole tiles of keys and values, all columns at once.
template <class Tile, class Q, class K, class V, class Params>
DEV void attend(const Params& p, const AttentionSizes& s, const AttentionPlace<Tile>& at, MmaSums<Tile>& sums,
                StreamingSoftmax<Tile>& softmax) {
  using T = typename Q::T;
  constexpr int kChunks = Tile::kDepth / 8, kValueChunks = Tile::kValueColumns / 8;
  const uint32_t shared = shared_address(shared_memory());
  RowTiles<Tile, Q, Tile::kQueries, kChunks> queries;
  queries.move(p, at.q_row, at.query, s.queries);
  queries.copy(0, s.depth, shared + Tile::kQueryAt);
  cp_async_commit();
  auto copy = [&](int tile, uint32_t stage) {
    if (tile < at.key_tiles) {
      RowTiles<Tile, K, Tile::kKeys, kChunks> keys;
      RowTiles<Tile, V, Tile::kKeys, kValueChunks> values;
      keys.move(p, at.kv_row, tile * Tile::kKeys, at.seen);
      keys.copy(0, s.depth, shared + stage);
      values.move(p, at.kv_row, tile * Tile::kKeys, at.seen);
      values.copy(at.column, s.depth, shared + stage + Tile::kKeyBytes);
    }
    cp_async_commit();  // possibly empty, so that groups and tiles count alike
  };
  UNROLL for (int i = 0; i < Tile::kStages - 1; ++i) copy(i, i * Tile::kStageBytes);
  cp_async_wait<Tile::kStages - 1>();
  sync_block();
  QueryFragments<Tile, kChunks> q(shared + Tile::kQueryAt);
  if constexpr (Tile::kStay) q.load_all();

  uint32_t read = 0, write = (Tile::kStages - 1) * Tile::kStageBytes;
  auto advance = [](uint32_t& stage) {
    stage = stage == Tile::kPipelineBytes - Tile::kStageBytes ? 0 : stage + Tile::kStageBytes;
  };
  OrderedSums<Tile> ordered;
  NO_UNROLL for (int tile = 0; tile < at.key_tiles; ++tile) {
    cp_async_wait<Tile::kStages - 2>();
    sync_block();  // this tile is complete, and all have read the stage written next
    copy(tile + Tile::kStages - 1, write);
    advance(write);
    MmaScores<Tile> scores;
    scores.clear();
    scores.template add<T>(q, shared + read);
    if ((tile + 1) * Tile::kKeys > at.seen_by_first) scores.mask(s, at.query, tile * Tile::kKeys);
    ordered.weigh(T{}, scores, softmax, tile);
    if (Tile::kOrder == 0 || tile > 0) ordered.rescale(sums, softmax, tile);
    if (ordered.begins(tile)) sums = {};
    MmaWeights<Tile> weights;
    weights.round(T{}, scores);
    weights.template multiply<T, kValueChunks>(sums, 0, shared + read + Tile::kKeyBytes);
    advance(read);
  }
  ordered.finish(sums, softmax, at.key_tiles);
}

/// The blocks of 64 columns of k and v in the order in which a deep head uses them: a tile's keys, then its values.
template <class Tile, class K, class V>
struct DeepStream {
  static constexpr int kChunks = Tile::kBlock / 8;
  RowTiles<Tile, K, Tile::kKeys, kChunks> keys;
  RowTiles<Tile, V, Tile::kKeys, kChunks> values;
  int key_blocks, value_blocks;  ///< per tile
  int tile = 0, block = 0;
  uint32_t stage = 0;

  DEV DeepStream(const AttentionSizes& s, int column) {
    const int columns = s.depth - column < Tile::kValueColumns ? s.depth - column : Tile::kValueColumns;
    key_blocks = (s.depth + Tile::kBlock - 1) / Tile::kBlock;
    value_blocks = (columns + Tile::kBlock - 1) / Tile::kBlock;
  }

  template <class Params>
  DEV void copy(const Params& p, const AttentionPlace<Tile>& at, uint32_t shared) {
    if (tile < at.key_tiles) {
      const int value = block - key_blocks;
      if (block == 0) keys.move(p, at.kv_row, tile * Tile::kKeys, at.seen);
      if (value == 0) values.move(p, at.kv_row, tile * Tile::kKeys, at.seen);
      if (value < 0)
        keys.copy(block * Tile::kBlock, p.sizes.depth, shared + stage);
      else
        values.copy(at.column + value * Tile::kBlock, p.sizes.depth, shared + stage);
      if (++block == key_blocks + value_blocks) block = 0, ++tile;
    }
    cp_async_commit();
    stage = stage == Tile::kPipelineBytes - Tile::kStageBytes ? 0 : stage + Tile::kStageBytes;
  }
};

/// A deep head: keys and values block by block.
template <class Tile, class Q, class K, class V, class Params>
DEV void attend_deep(const Params& p, const AttentionSizes& s, const AttentionPlace<Tile>& at, MmaSums<Tile>& sums,
                     StreamingSoftmax<Tile>& softmax) {
  using T = typename Q::T;
  constexpr int kChunks = Tile::kBlock / 8, kQueryBlock = Tile::kQueries * Tile::kBlock * 2;
  const uint32_t shared = shared_address(shared_memory());
  DeepStream<Tile, K, V> stream(s, at.column);
  RowTiles<Tile, Q, Tile::kQueries, kChunks> queries;
  queries.move(p, at.q_row, at.query, s.queries);
  NO_UNROLL for (int block = 0; block < stream.key_blocks; ++block)
      queries.copy(block * Tile::kBlock, s.depth, shared + Tile::kQueryAt + block * kQueryBlock);
  UNROLL for (int i = 0; i < Tile::kStages - 1; ++i) stream.copy(p, at, shared);  // the first group has the queries

  uint32_t read = (Tile::kStages - 1) * Tile::kStageBytes;
  auto next_block = [&] {
    cp_async_wait<Tile::kStages - 2>();
    sync_block();
    stream.copy(p, at, shared);
    read = read == Tile::kPipelineBytes - Tile::kStageBytes ? 0 : read + Tile::kStageBytes;
  };
  NO_UNROLL for (int tile = 0; tile < at.key_tiles; ++tile) {
    MmaScores<Tile> scores;
    scores.clear();
    NO_UNROLL for (int block = 0; block < stream.key_blocks; ++block) {
      next_block();
      QueryFragments<Tile, kChunks> q(shared + Tile::kQueryAt + block * kQueryBlock);
      scores.template add<T>(q, shared + read);
    }
    if ((tile + 1) * Tile::kKeys > at.seen_by_first) scores.mask(s, at.query, tile * Tile::kKeys);
    softmax.weigh(scores);
    softmax.rescale(sums);
    MmaWeights<Tile> weights;
    weights.round(T{}, scores);
    UNROLL for (int block = 0; block < Tile::kValueColumns / Tile::kBlock; ++block) {
      if (block < stream.value_blocks) {
        next_block();
        weights.template multiply<T, kChunks>(sums, block * kChunks, shared + read);
      }
    }
  }
}

/// Keys: count(p, batch) of a batch entry, if it is not in the sizes. Lse: store(p, row, value), if wanted.
template <class Tile, class Q, class K, class V, class Epilogue, class Keys = AllKeys, class Lse = NoLse, class Params>
DEV void attention_mma(const Params& p) {
  static_assert(Q::kWidth == 8 && K::kWidth == 8 && V::kWidth == 8 && Epilogue::kLanes == 1);
  const AttentionSizes s = sizes_of_entry<Keys>(p, block_z());
  const AttentionPlace<Tile> at(s);
  MmaSums<Tile> sums = {};
  StreamingSoftmax<Tile> softmax(s.scale);
  griddep_wait();
  griddep_launch();
  if constexpr (Tile::kDeep)
    attend_deep<Tile, Q, K, V>(p, s, at, sums, softmax);
  else
    attend<Tile, Q, K, V>(p, s, at, sums, softmax);
  if constexpr (Lse::kWanted) store_lse<Tile, Lse>(p, s, at, softmax);
  softmax.divide(sums);
  cp_async_wait<0>();
  sync_block();
  const WarpPlace place{warp() * Tile::kWarpM, 0,
                        reinterpret_cast<float*>(shared_memory() + warp() * Tile::kSlabBytes)};
  mma_store<Tile, Epilogue>(
      p, sums, place, [&](int i) { return at.query + i < s.queries ? at.q_row + at.query + i : -1; }, at.column,
      s.depth);
}

}  // namespace tenon::device
