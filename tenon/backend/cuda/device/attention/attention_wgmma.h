// Streaming-softmax attention with wgmma, y = softmax(scale q k^T) v for each head: AttentionSizes, scale > 0, heads of
// at most kValueColumns columns.
//
//   one warp: boxes of q, k and v --TMA--> shared memory: blocks of 64 columns, swizzled; kStages tiles of keys deep
//   kGroups warpgroups, 64 queries each:
//     scores of tile i --wgmma--> registers --softmax--> weights, rounded to T    while the tensor cores still do
//     sums += weights * values of tile i - 1, weights from registers             --slabs--> the epilogue
//
// A tile with kOrder sums in the order of attention_grouped.h (OrderedSums): equal bits for a text's rows and for a
// single token over a cache.
//
// Four mbarriers per stage: keys and values arrive and are released separately. With kTurns, warpgroups take turns to
// start products (ping-pong), so that one's softmax overlaps another's products.
//
// grid.x = tiles of queries of a head, each of up to kGroups times 64: any number that covers them. grid.y = heads,
// grid.z = batch; Tile::kThreads, Tile::kSharedBytes. Params has a member `sizes`; Q, K, V are tensors
// [batch][head][token][column] with any strides:
//   struct Q { using T = F16; DEV static const TensorMap& map(const Params& p) { return p.map0; } };
// in boxes (attention_tiles.h's head_box) of 64 columns by 64 tokens for q, kKeys for k and v. If k and v are paged
// (InPages), the boxes are of the pool. Epilogue (one lane) gets the rows of Q, row (batch * heads + head) * queries +
// token. Keys (attention_keys.h) may give their number per batch entry: tiles beyond it are not copied, and what the
// last tile holds beyond it is ignored. Lse: as in attention_mma.h. A NaN reaches the results of all queries that see
// it; under a causal mask, a NaN in v also reaches other queries of the same tile, because keys they do not see are
// multiplied by 0.
#pragma once
#include "tenon/backend/cuda/device/attention/attention_softmax.h"
#include "tenon/backend/cuda/device/vocabulary_held.h"

namespace tenon::device {

/// 64 * kGroups_ queries x kKeys_ keys at a time. kDepth_: the depth rounded up to 16; kValueColumns_: rounded up to a
/// supported product (vocabulary_held.h). kStages_: 1 only if all keys fit in one tile. kBlocks_: blocks per
/// multiprocessor. kOrder_: 0, or the common order for up to 1024 keys (1) or any number (2).
template <int kDepth_, int kValueColumns_, int kGroups_, int kKeys_, int kStages_, int kBlocks_, bool kTurns_,
          int kOrder_ = 0>
struct AttentionWgmmaTile {
  static constexpr int kDepth = kDepth_, kValueColumns = kValueColumns_, kGroups = kGroups_, kKeys = kKeys_;
  static constexpr int kStages = kStages_, kBlocks = kBlocks_;
  static constexpr int kOrder = kOrder_, kSumThreads = 128 * kGroups_;
  static constexpr bool kTurns = kTurns_ && kGroups > 1;
  static constexpr int kQueries = 64 * kGroups, kSumWarps = 4 * kGroups, kThreads = 32 * kSumWarps + 128;
  /// Registers per thread at first, then for consumers; the producer warpgroup gives up all but 24 to 32.
  static constexpr int kEqualRegisters = 512 / kBlocks / (kGroups + 1) / 8 * 8;
  static constexpr int kMaxRegisters = (kEqualRegisters * (kGroups + 1) - 24) / kGroups / 8 * 8;
  static constexpr int kRegisters = kMaxRegisters < 240 ? kMaxRegisters : 240;
  static constexpr bool kMovesRegisters = kEqualRegisters < kRegisters;
  static constexpr int kCopyRegisters = kEqualRegisters * (kGroups + 1) - kGroups * kRegisters;
  // What MmaSums and mma_store need.
  static constexpr int kWarpM = 16, kWarpN = kValueColumns;
  static constexpr int kSlabColumns = kValueColumns % 80 == 0 ? 80 : kValueColumns % 64 == 0 ? 64 : kWarpN;
  static constexpr int kSlabBytes = 16 * (kSlabColumns + 8) * 4;

  static constexpr int kColumnBlocks = (kDepth + 63) / 64;  ///< of 64 columns, of q, k and v
  static constexpr int kKeyBlock = kKeys * 128, kQueryBlock = 64 * 128;
  static constexpr int kTileBytes = kColumnBlocks * kKeyBlock, kStageBytes = 2 * kTileBytes;  ///< keys; and values
  /// A warpgroup's queries, later its slabs.
  static constexpr int kQueryBytes = kColumnBlocks * kQueryBlock;
  static constexpr int kGroupBytes = kQueryBytes > 4 * kSlabBytes ? kQueryBytes : (4 * kSlabBytes + 1023) / 1024 * 1024;
  static constexpr int kGroupsAt = kStages * kStageBytes, kSegmentsAt = kGroupsAt + kGroups * kGroupBytes;
  static constexpr int kBarriersAt = kSegmentsAt + (kOrder > 1 ? kSumThreads * kValueColumns / 2 * 4 : 0);
  static constexpr int kSharedBytes = kBarriersAt + 32 * kStages + 16;
  /// Whether the queries' fragments stay in registers, next to scores, weights and sums.
  static constexpr bool kHeld = (3 * kKeys + (kOrder ? 4 : 2) * kValueColumns + kDepth) / 4 + 32 <= kRegisters;
  static_assert(kDepth % 16 == 0 && kKeys % 16 == 0 && kValueColumns <= 64 * kColumnBlocks && kGroups <= 4);
  static_assert(kOrder == 0 || 128 % kKeys == 0);
};

/// A block's part of the problem. The 64s of a head's queries are distributed over its tiles as evenly as possible;
/// larger tiles start first, so that little work is left for the last multiprocessors.
template <class Tile>
struct GroupsPlace : AttentionPlace<Tile> {
  int batch, head, groups;  ///< groups: warpgroups that have queries

  DEV explicit GroupsPlace(const AttentionSizes& s) {
    const int all = (s.queries + 63) / 64, tiles = grid_x(), few = all / tiles, larger = all % tiles;
    const int heads = s.batch * s.heads;
    int index = (block_z() * s.heads + block_y()) * tiles + block_x(), from = 0, each = larger;
    if (index >= larger * heads) index -= larger * heads, from = larger, each = tiles - larger;
    const int of = index / each, tile = from + index % each;
    batch = of / s.heads, head = of % s.heads;
    groups = few + (tile < larger);
    const int before = tile * few + (tile < larger ? tile : larger);
    // Under a causal mask the last queries see the most keys: they start first.
    this->look(s, batch, head, 64 * (all - before - groups), 64 * groups);
  }
};

/// The buffers and mbarriers of a tile of keys and values, which arrive and are released separately.
template <class Tile>
struct AttentionStage {
  uint32_t shared = shared_address(shared_memory());
  int stage = 0, phase = 0;
  DEV uint32_t keys() const { return shared + stage * Tile::kStageBytes; }
  DEV uint32_t values() const { return keys() + Tile::kTileBytes; }
  DEV uint32_t keys_full() const { return shared + Tile::kBarriersAt + 32 * stage; }
  DEV uint32_t keys_empty() const { return keys_full() + 8; }
  DEV uint32_t values_full() const { return keys_full() + 16; }
  DEV uint32_t values_empty() const { return keys_full() + 24; }
  DEV uint32_t queries_full() const { return shared + Tile::kBarriersAt + 32 * Tile::kStages; }
  DEV void advance() {
    if (++stage == Tile::kStages) stage = 0, phase ^= 1;
  }
};
/// Initializes all stages' mbarriers, for `warps` warps that release each; called by one thread.
template <class Tile>
DEV void init_stages(int warps) {
  for (AttentionStage<Tile> ring; ring.phase == 0; ring.advance()) {
    mbarrier_init(ring.keys_full(), 1);
    mbarrier_init(ring.keys_empty(), warps);
    mbarrier_init(ring.values_full(), 1);
    mbarrier_init(ring.values_empty(), warps);
  }
}
/// Tells the producer that this warp is done with the buffer.
DEV void leave(uint32_t empty) {
  if (lane() == 0) mbarrier_arrive(empty);
}

/// Copies a box of a head's rows from `token` on, in blocks of 64 columns, `block_bytes` apart.
template <class Tile>
DEV void load_head_rows(uint32_t to, int block_bytes, const TensorMap& map, uint32_t full, int token, int head,
                        int batch) {
  UNROLL for (int block = 0; block < Tile::kColumnBlocks; ++block)
      tma_load(to + block * block_bytes, map, full, 64 * block, token, head, batch);
}

DEV void attention_products(BF16, auto& d, uint64_t a, uint64_t b, bool adds) { wgmma_bf16(d, a, b, adds); }
DEV void attention_products(F16, auto& d, uint64_t a, uint64_t b, bool adds) { wgmma_f16(d, a, b, adds); }
template <bool kColumns>
DEV void held_products(BF16, auto& d, const uint32_t (&a)[4], uint64_t b, bool adds) {
  wgmma_held_bf16<kColumns>(d, a, b, adds);
}
template <bool kColumns>
DEV void held_products(F16, auto& d, const uint32_t (&a)[4], uint64_t b, bool adds) {
  wgmma_held_f16<kColumns>(d, a, b, adds);
}

/// A warpgroup's queries for the first product: fragments in registers, or their address in shared memory.
template <class Tile>
struct HeldQueries {
  uint32_t shared, f[Tile::kHeld ? Tile::kDepth / 16 : 1][4];

  HeldQueries() = default;
  DEV explicit HeldQueries(uint32_t queries) : shared(queries) {
    if constexpr (Tile::kHeld) {
      const int row = warp() % 4 * 16 + lane() % 16;
      UNROLL for (int k_block = 0; k_block < Tile::kDepth / 16; ++k_block) {
        const int chunk = k_block % 4 * 2 + lane() / 16;
        ldmatrix_x4(f[k_block], shared + k_block / 4 * Tile::kQueryBlock + row * 128 + (chunk ^ row % 8) * 16);
      }
    }
  }

  /// Starts scores = q k^T, for all or some of the tile's keys.
  template <class T, class Keys>
  DEV void multiply(AttentionScores<Keys>& scores, uint32_t keys) const {
    const uint64_t b = wgmma_rows(keys), a = wgmma_rows(shared);
    UNROLL for (int k_block = 0; k_block < Tile::kDepth / 16; ++k_block) {
      // A descriptor counts in units of 16 bytes.
      const uint64_t of_b = b + k_block / 4 * (Tile::kKeyBlock / 16) + k_block % 4 * 2;
      if constexpr (Tile::kHeld)
        held_products<false>(T{}, scores.v[0], f[k_block], of_b, k_block > 0);
      else
        attention_products(T{}, scores.v[0], a + k_block / 4 * (Tile::kQueryBlock / 16) + k_block % 4 * 2, of_b,
                           k_block > 0);
    }
    wgmma_commit();
  }
};

/// Starts sums += weights * values, for all or some of the tile's keys; sums = if `first`.
template <class Tile, class T, class Keys>
DEV void add_values(MmaSums<Tile>& sums, const AttentionWeights<Keys>& weights, uint32_t values, bool first = false) {
  const uint64_t b = wgmma_columns(values, Tile::kKeyBlock);
  UNROLL for (int k_block = 0; k_block < Keys::kKeys / 16; ++k_block)
      held_products<true>(T{}, sums.v[0], weights.f[k_block][0], b + k_block * (2048 / 16), !first || k_block > 0);
  wgmma_commit();
}

/// Coordinates of the box of a tile of keys. With pages, which hold whole tiles, they are looked up; a tile without a
/// page is read from the first one, and masked.
struct TileFrom {
  int token, batch;
};
template <class Tile, class K, class Params>
DEV TileFrom tile_from(const Params& p, int batch, int tile) {
  if constexpr (InPages<K>) {
    static_assert(K::kPage % Tile::kKeys == 0);
    const int place = K::place(p, batch, tile * Tile::kKeys);
    return {place < 0 ? 0 : place, 0};
  } else {
    return {tile * Tile::kKeys, batch};
  }
}

/// The producer thread.
template <class Tile, class Q, class K, class V, class Params>
DEV void attention_produce(const Params& p, const GroupsPlace<Tile>& at) {
  const int kv_head = at.head / (p.sizes.heads / p.sizes.kv_heads);
  AttentionStage<Tile> to;
  mbarrier_arrive_expecting(to.queries_full(), at.groups * Tile::kQueryBytes);
  NO_UNROLL for (int group = 0; group < at.groups; ++group)
      load_head_rows<Tile>(to.shared + Tile::kGroupsAt + group * Tile::kGroupBytes, Tile::kQueryBlock, Q::map(p),
                           to.queries_full(), at.query + 64 * group, at.head, at.batch);
  NO_UNROLL for (int tile = 0; tile < at.key_tiles; ++tile) {
    const TileFrom from = tile_from<Tile, K>(p, at.batch, tile);
    mbarrier_wait(to.keys_empty(), to.phase ^ 1);
    mbarrier_arrive_expecting(to.keys_full(), Tile::kTileBytes);
    load_head_rows<Tile>(to.keys(), Tile::kKeyBlock, K::map(p), to.keys_full(), from.token, kv_head, from.batch);
    mbarrier_wait(to.values_empty(), to.phase ^ 1);
    mbarrier_arrive_expecting(to.values_full(), Tile::kTileBytes);
    load_head_rows<Tile>(to.values(), Tile::kKeyBlock, V::map(p), to.values_full(), from.token, kv_head, from.batch);
    to.advance();
  }
}

/// Zeroes the rows from `there` on of a tile of values: whatever they contain would be multiplied by 0, and NaN times 0
/// is NaN. Done by a warpgroup for its own products; others that do so write the same.
template <class Tile>
DEV void clear_values(uint32_t values, int there, int group) {
  if (there >= Tile::kKeys) return;
  unsigned char* const tile = shared_memory() + (values - shared_address(shared_memory()));
  UNROLL for (int block = 0; block < Tile::kColumnBlocks; ++block)
      NO_UNROLL for (int at = there * 128 + thread_index() % 128 * 16; at < Tile::kKeyBlock; at += 128 * 16)
          store(tile + block * Tile::kKeyBlock + at, Frag<uint8_t, 16>{});
  fence_async();
  sync_named(8 + group, 128);
}

/// The order in which warpgroups start products (ping-pong): each waits for the one before it.
template <class Tile>
struct WarpgroupTurns {
  int group, groups;
  DEV WarpgroupTurns(int own, int of) : group(own), groups(of) {
    if (taken() && group == groups - 1) arrive_named(1, 256);
  }
  DEV bool taken() const { return Tile::kTurns && groups > 1; }
  DEV void wait() const {
    if (taken()) sync_named(1 + group, 256);
  }
  /// Not after the last turn, since no one waits then.
  DEV void pass(bool last) const {
    const bool end = group == groups - 1;
    if (taken() && !(last && end)) arrive_named(end ? 1 : 2 + group, 256);
  }
};

/// All tiles of keys, by one warpgroup.
template <class Tile, class T, class Keys>
DEV void attention_consume(const AttentionSizes& s, const GroupsPlace<Tile>& at, MmaSums<Tile>& sums,
                           StreamingSoftmax<Tile>& softmax) {
  OrderedSums<Tile> ordered;
  const int group = warp_uniform() / 4;
  AttentionStage<Tile> keys, values;
  mbarrier_wait(keys.queries_full(), 0);
  const HeldQueries<Tile> queries(keys.shared + Tile::kGroupsAt + group * Tile::kGroupBytes);
  const WarpgroupTurns<Tile> turns(group, at.groups);
  AttentionWeights<Tile> weights;
  auto hide = [&](AttentionScores<Tile>& scores, int tile) {
    if ((tile + 1) * Tile::kKeys > at.seen_by_first) scores.mask(s, at.query, tile * Tile::kKeys);
  };
  {
    AttentionScores<Tile> scores;
    turns.wait();
    mbarrier_wait(keys.keys_full(), 0);
    wgmma_fence();
    queries.template multiply<T>(scores, keys.keys());
    turns.pass(at.key_tiles == 1);
    wgmma_wait<0>();
    wgmma_settle(scores.v[0]);
    leave(keys.keys_empty());
    keys.advance();
    hide(scores, 0);
    ordered.weigh(T{}, scores, softmax, 0);
    weights.round(T{}, scores);
    if (at.key_tiles > 1) mbarrier_wait(keys.keys_full(), keys.phase);
  }
  NO_UNROLL for (int tile = 1; tile < at.key_tiles; ++tile) {
    AttentionScores<Tile> scores;
    mbarrier_wait(values.values_full(), values.phase);
    turns.wait();
    wgmma_fence();
    queries.template multiply<T>(scores, keys.keys());
    add_values<Tile, T>(sums, weights, values.values(), ordered.begins(tile - 1));
    turns.pass(tile + 1 == at.key_tiles);
    wgmma_wait<1>();
    wgmma_settle(scores.v[0]);
    leave(keys.keys_empty());
    keys.advance();
    hide(scores, tile);
    ordered.weigh(T{}, scores, softmax, tile);
    // The parity depends on all weights: otherwise the assembler would move the wait for the products before them.
    if (tile + 1 < at.key_tiles) mbarrier_wait(keys.keys_full(), keys.phase ^ softmax.negative());
    wgmma_wait<0>();
    wgmma_settle(sums.v[0]);
    leave(values.values_empty());
    values.advance();
    ordered.rescale(sums, softmax, tile);
    weights.round(T{}, scores);
  }
  mbarrier_wait(values.values_full(), values.phase);
  if constexpr (Keys::kGiven) clear_values<Tile>(values.values(), s.keys - (at.key_tiles - 1) * Tile::kKeys, group);
  wgmma_fence();
  add_values<Tile, T>(sums, weights, values.values(), ordered.begins(at.key_tiles - 1));
  wgmma_wait<0>();
  wgmma_settle(sums.v[0]);
  ordered.finish(sums, softmax, at.key_tiles);
}

template <class Tile, class Q, class K, class V, class Epilogue, class Keys = AllKeys, class Lse = NoLse, class Params>
DEV void attention_wgmma(const Params& p) {
  static_assert(Epilogue::kLanes == 1);
  GroupsPlace<Tile> at(p.sizes);
  if (thread_index() == 0) {
    init_stages<Tile>(4 * at.groups);
    mbarrier_init(AttentionStage<Tile>().queries_full(), 1);
    mbarrier_init_fence();
  }
  sync_block();
  griddep_wait();
  griddep_launch();
  AttentionSizes counted;
  if constexpr (Keys::kGiven) {
    counted = sizes_of_entry<Keys>(p, at.batch);
    at.look(counted, at.batch, at.head, at.query, 64 * at.groups);
  }
  const AttentionSizes& s = Keys::kGiven ? counted : p.sizes;
  if (warp_uniform() >= Tile::kSumWarps) {
    if constexpr (Tile::kMovesRegisters) registers_decrease<Tile::kCopyRegisters>();
    if (thread_index() == 32 * Tile::kSumWarps && at.key_tiles > 0) attention_produce<Tile, Q, K, V>(p, at);
    return;
  }
  if (warp_uniform() / 4 >= at.groups) return;
  if constexpr (Tile::kMovesRegisters) registers_increase<Tile::kRegisters>();
  MmaSums<Tile> sums = {};
  StreamingSoftmax<Tile> softmax(s.scale);
  if (at.key_tiles > 0) attention_consume<Tile, typename Q::T, Keys>(s, at, sums, softmax);
  if constexpr (Lse::kWanted) store_lse<Tile, Lse>(p, s, at, softmax);
  softmax.divide(sums);
  const int group = warp_uniform() / 4;
  sync_named(8 + group, 128);  // the whole warpgroup is done with its queries: slabs reuse their memory
  const WarpPlace place{warp() * 16, 0,
                        reinterpret_cast<float*>(shared_memory() + Tile::kGroupsAt + group * Tile::kGroupBytes +
                                                 warp() % 4 * Tile::kSlabBytes)};
  mma_store<Tile, Epilogue>(
      p, sums, place, [&](int i) { return at.query + i < s.queries ? at.q_row + at.query + i : -1; }, 0, s.depth);
}

}  // namespace tenon::device
