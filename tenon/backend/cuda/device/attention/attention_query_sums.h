// The gradient of queries from blocks that have the gradients of their keys (attention_gradient.h, kSumsQueries): each
// adds ds k for its keys.
//
// Warpgroups leave ds^T in shared memory. A tile of queries later, each multiplies all of it with 64 columns of k, and
// one of two threads adds the result to dq in memory, block after block in the order of query_turn: it waits until as
// many blocks have added theirs. So all blocks of a head must be running at some time: they take their places in the
// order in which they start, and blocks of different keys begin with different queries.
#pragma once
#include "tenon/backend/cuda/device/attention/attention_wgmma.h"
#include "tenon/backend/cuda/device/vocabulary_columns.h"

namespace tenon::device {

/// A block of the grid: its tile of rows, and whose.
struct BlockNumber {
  int tile, head, batch;
};

/// The block's number in the grid.
template <class Tile>
DEV BlockNumber block_number(const AttentionSizes& s) {
  if constexpr (!Tile::kSumsQueries) return {block_x(), block_y(), block_z()};
  int* const number = reinterpret_cast<int*>(shared_memory() + Tile::kQueryBarriersAt + 64);
  if (thread_index() == 0) {
    griddep_wait();
    *number = static_cast<int>(atomic_add(s.split.counters, 1u));
    if (*number == grid_x() - 1) *s.split.counters = 0;
  }
  sync_block();
  const int tiles = (s.keys + Tile::kRows - 1) / Tile::kRows, head = *number / tiles;
  return {*number % tiles, head % s.kv_heads, head / s.kv_heads};
}

/// The gradient of queries is not computed.
struct NoQuerySums {};

/// What a block adds to the gradient of queries: its gradients of scores, ds^T [keys][queries] of a tile of queries,
/// two tiles deep, and their product with its keys, a tile later. `i`: how many tiles came before; of tile -1, before
/// the first, everything is computed and nothing used.
template <class Tile>
struct QueryParts {
  using Part = AttentionScores<Tile>;  ///< 64 queries x 64 columns: a warpgroup's
  int group = 0;
  uint32_t shared = shared_address(shared_memory());
  Part part;

  DEV int scores_at(int i) const { return Tile::kScoresAt + (i & 1) * Tile::kGroups * Tile::kScoreBytes; }
  DEV uint32_t scores_full(int i) const { return shared + Tile::kQueryBarriersAt + 8 * (i % 2); }
  DEV uint32_t scores_empty(int i) const { return scores_full(i) + 16; }
  DEV uint32_t part_full(int i) const { return scores_full(i) + 32; }
  DEV uint32_t part_empty(int i) const { return scores_full(i) + 48; }
  DEV void init() const {
    for (int i = 0; i < 2; ++i) {
      mbarrier_init(scores_full(i), Tile::kSumWarps);
      mbarrier_init(scores_empty(i), Tile::kSumWarps);
      mbarrier_init(part_full(i), Tile::kSumWarps);
      mbarrier_init(part_empty(i), 1);
    }
  }

  /// Stores a warp's gradients of scores, swizzled, and waits for those of the tile before.
  DEV void put_scores(const AttentionWeights<Tile>& rounded, int i) const {
    unsigned char* const rows = shared_memory() + scores_at(i) + warp() * 16 * 128;
    mbarrier_wait(scores_empty(i), i / 2 % 2 ^ 1);
    UNROLL for (int half = 0; half < 2; ++half) UNROLL for (int j = 0; j < Tile::kKeys / 8; ++j) {
      const int row = lane() / 4, chunk = j ^ row;  // row + 8 has the same pattern
      *reinterpret_cast<uint32_t*>(rows + (row + 8 * half) * 128 + chunk * 16 + lane() % 4 * 4) =
          rounded.f[j / 2][0][half + j % 2 * 2];
    }
    fence_async();
    sync_warp();
    leave(scores_full(i));
    if (i > 0) mbarrier_wait(scores_full(i - 1), (i - 1) / 2 % 2);
  }
  /// Starts to = ds k.
  template <class T>
  DEV void multiply(Part& to, int i) const {
    UNROLL for (int from = 0; from < Tile::kGroups; ++from) {
      const uint32_t keys =
          shared + Tile::kGroupsAt + from * Tile::kGroupBytes + static_cast<uint32_t>(group) * Tile::kHeldBlock;
      const uint64_t a = columns_of(T{}, shared + scores_at(i) + from * Tile::kScoreBytes, 0),
                     b = columns_of(T{}, keys, 0);
      UNROLL for (int k_block = 0; k_block < 4; ++k_block) wgmma_in_columns<true, true>(
          T{}, to.v[0], a + k_block * (2048 / 16), b + k_block * (2048 / 16), from + k_block > 0);
    }
    wgmma_commit();
  }
  /// Takes the finished product, times `scale`: not in place, because the assembler lets no one read a product's
  /// registers while another runs.
  DEV void keep(Part& product, int i, float scale) {
    wgmma_settle(product.v[0]);
    if (i >= 0) leave(scores_empty(i));
    UNROLL for (int j = 0; j < Part::kColumns; ++j) UNROLL for (int e = 0; e < 4; ++e) part.v[0][j][e] =
        product.v[0][j][e] * scale;
  }
  DEV int box_at(int i, int box) const { return Tile::kPartAt + (i % 2 * Tile::kBoxes + box) * Tile::kBoxBytes; }
  /// Stores the warpgroup's part, swizzled, where the thread that adds it reads it.
  DEV void put_part(int i) const {
    mbarrier_wait(part_empty(i), i / 2 % 2 ^ 1);
    // In an even row fragment j, in an odd one j ^ 2: otherwise both would go to the same banks.
    const int row = warp() % 4 * 16 + lane() / 4, odd = row % 2;
    UNROLL for (int half = 0; half < 2; ++half) UNROLL for (int j = 0; j < 8; ++j) {
      const int chunk = ((j % 4 ^ 2 * odd) * 2 + lane() % 4 / 2) ^ row % 8;
      unsigned char* const box = shared_memory() + box_at(i, 2 * group + j / 4);
      const float *const of_even = part.v[0][j] + 2 * half, *const of_odd = part.v[0][j ^ 2] + 2 * half;
      store(reinterpret_cast<float*>(box + (row + 8 * half) * 128 + chunk * 16 + lane() % 2 * 8),
            Frag<float, 2>{{odd ? of_odd[0] : of_even[0], odd ? of_odd[1] : of_even[1]}});
    }
    fence_async();
    sync_warp();
    leave(part_full(i));
  }
  /// Puts the last two of `count` parts.
  template <class T>
  DEV void finish(int count, float scale) {
    if (count > 1) put_part(count - 2);
    Part last;
    mbarrier_wait(scores_full(count - 1), (count - 1) / 2 % 2);
    wgmma_fence();
    multiply<T>(last, count - 1);
    wgmma_wait<0>();
    keep(last, count - 1, scale);
    put_part(count - 1);
  }
};

/// One of two threads that add the parts to the gradient of queries, in turn with the blocks of other keys. Each takes
/// every other tile, because it takes longer than a tile until others see what it has added.
template <class Tile, class QuerySums, class Place, class Params>
DEV void gradient_add_parts(const Params& p, const Place& at, int first) {
  const QueryParts<Tile> parts{};
  NO_UNROLL for (int i = first; i < at.heads * at.tiles; i += 2) {
    const int token = at.token(i % at.tiles), turn = at.query_turn(token);
    const int of = at.batch * p.sizes.heads + at.first_head + i / at.tiles;
    uint32_t* const counter = p.sizes.split.counters + 1 + of * at.tiles + token / Tile::kKeys;
    counter_wait(counter, turn);
    mbarrier_wait(parts.part_full(i), i / 2 % 2);
    UNROLL for (int box = 0; box < Tile::kBoxes; ++box) {
      if (32 * box >= p.sizes.depth) continue;
      if (turn == 0)
        tma_store(QuerySums::map(p), parts.shared + parts.box_at(i, box), 32 * box, token, of);
      else
        tma_add(QuerySums::map(p), parts.shared + parts.box_at(i, box), 32 * box, token, of);
    }
    tma_store_wait();
    mbarrier_arrive(parts.part_empty(i));
    tma_store_finish();
    counter_set(counter, turn + 1 == at.blocks ? 0 : turn + 1);
  }
}

}  // namespace tenon::device
