// Gradients of attention with wgmma, from recomputed scores: AttentionSizes, scale > 0, p = e^(scale q k^T - lse), ds =
// p (g v^T - delta).
//
//   of queries           dq = scale ds k                    held: q and g       stream: k and v
//   of keys and values   dk = scale ds^T q, dv = p^T g      held: k and v       stream: q and g
//   of all three         dk and dv, and a part of dq for each tile of queries (attention_query_sums.h)
//
// One kernel for all roles. A warpgroup has 64 rows: its two held operands stay in shared memory, while tiles of kKeys
// rows of the other two stream by.
//
//   one warp: boxes --TMA--> shared memory: blocks of 64 columns, swizzled; kStages tiles deep
//   another, for keys: lse and delta of the tile's queries --> shared memory
//   kGroups warpgroups: first held * first streamed, second held * second streamed --wgmma--> registers: scores and
//     the gradient of their weights --> p and ds, rounded to T --wgmma, from registers--> sums --slabs--> the epilogue
//
// Weights are computed while the second product runs, and ds while other warpgroups' products run. Sums for keys are
// over the queries of all heads that share them, in a fixed order: results do not depend on which block is first.
//
// grid.x = tiles of 64 * kGroups rows, grid.y = heads (of keys if rows are keys), grid.z = batch; with kSumsQueries,
// all of these along x. Tile::kThreads, Tile::kSharedBytes. Params has a member `sizes`; Q, K, V, G are tensors
// [batch][head][token][column] as in attention_wgmma.h, in boxes of 64 rows if held, else of kKeys. Sums: lse(p, row)
// and delta(p, row) of row (batch * heads + head) * queries + query. Epilogue (one lane) gets the rows of the held
// operands, row (batch * heads + head) * rows + token: dq, or dk followed by dv after its `depth` columns. Keys as in
// attention_wgmma.h: keys beyond their number have gradients of 0. With kSumsQueries, QuerySums::map(p) is where dq
// goes, f32 [batch * heads][queries][depth], in boxes of 32 columns x 64 queries, and sizes.split.counters are blocks
// that have started, then those that have added to a tile of a head's queries. It takes no causal mask.
#pragma once
#include "tenon/backend/cuda/device/attention/attention_query_sums.h"

namespace tenon::device {

/// kDepth_, kValueColumns_ as in AttentionWgmmaTile. kKeys_: rows of a streamed tile, 32, 64, 96 or 128.
template <int kDepth_, int kValueColumns_, int kGroups_, int kKeys_, int kStages_, bool kOfKeys_,
          bool kSumsQueries_ = false>
struct AttentionGradientTile {
  static constexpr int kDepth = kDepth_, kValueColumns = kValueColumns_, kGroups = kGroups_, kKeys = kKeys_;
  static constexpr int kStages = kStages_;
  static constexpr bool kOfKeys = kOfKeys_;            ///< rows are keys
  static constexpr bool kSumsQueries = kSumsQueries_;  ///< and dq is computed, too
  static constexpr int kRows = 64 * kGroups, kSumWarps = 4 * kGroups, kThreads = 32 * kSumWarps + 128;
  static constexpr int kEqualRegisters = 512 / (kGroups + 1) / 8 * 8;
  static constexpr int kMaxRegisters = (kEqualRegisters * (kGroups + 1) - 24) / kGroups / 8 * 8;
  static constexpr int kRegisters = kMaxRegisters < 240 ? kMaxRegisters : 240;
  static constexpr bool kMovesRegisters = kEqualRegisters < kRegisters;
  static constexpr int kCopyRegisters = kEqualRegisters * (kGroups + 1) - kGroups * kRegisters;
  // What MmaSums and mma_store need.
  static constexpr int kWarpM = 16, kWarpN = kValueColumns;
  static constexpr int kSlabColumns = kValueColumns % 80 == 0 ? 80 : kValueColumns % 64 == 0 ? 64 : kWarpN;
  static constexpr int kSlabBytes = 16 * (kSlabColumns + 8) * 4;

  static constexpr int kColumnBlocks = (kDepth + 63) / 64;  ///< of 64 columns
  static constexpr int kHeldBlock = 64 * 128, kKeyBlock = kKeys * 128;
  static constexpr int kHeldBytes = kColumnBlocks * kHeldBlock, kTileBytes = kColumnBlocks * kKeyBlock;
  static constexpr int kStageBytes = 2 * kTileBytes;
  static constexpr int kGroupBytes = 2 * kHeldBytes > 4 * kSlabBytes ? 2 * kHeldBytes
                                                                     : (4 * kSlabBytes + 1023) / 1024 * 1024;
  static constexpr int kGroupsAt = kStages * kStageBytes, kScoresAt = kGroupsAt + kGroups * kGroupBytes;
  // Gradients of scores and parts of dq, in boxes: two tiles deep.
  static constexpr int kScoreBytes = 64 * 128, kBoxBytes = 64 * 128, kBoxes = 2 * kGroups;
  static constexpr int kPartAt = kScoresAt + (kSumsQueries ? 2 * kGroups * kScoreBytes : 0);
  static constexpr int kSumsAt = kPartAt + (kSumsQueries ? 2 * kBoxes * kBoxBytes : 0);
  static constexpr int kStageSums = kOfKeys ? 2 * kKeys * 4 : 0;  ///< bytes of lse and delta
  // Arrivals for a full tile, and of a warpgroup for an empty one. A lane's arrival orders only its own accesses, so
  // all lanes that write or read lse and delta arrive.
  static constexpr int kFullArrivals = kOfKeys ? 1 + 32 : 1, kEmptyArrivals = kOfKeys ? 128 : 4;
  static constexpr int kBarriersAt = kSumsAt + kStages * kStageSums;
  static constexpr int kQueryBarriersAt = kBarriersAt + 16 * kStages + 16;
  static constexpr int kSharedBytes = kQueryBarriersAt + (kSumsQueries ? 80 : 0);
  static_assert(!kSumsQueries || (kOfKeys && kKeys == 64 && kGroups == 2 && kDepth > 64 && kDepth <= 128));
  static_assert(kDepth % 16 == 0 && kKeys % 32 == 0 && kValueColumns <= 64 * kColumnBlocks && kGroups <= 4);
};

/// A block's part of the problem, and what streams past it.
template <class Tile>
struct GradientPlace {
  int batch, head, row, groups;  ///< head: of the rows; groups: warpgroups that have rows
  int rows;                      ///< of the head
  int first_head, heads;         ///< of the streamed operands
  int first, tiles;              ///< tiles of each of these heads
  int start = 0;                 ///< the tile to begin with, relative to the first; the others follow in a circle
  int blocks;                    ///< of the head's rows

  /// `all`: sizes with the capacity for keys; `s`: with the actual number.
  DEV GradientPlace(const AttentionSizes& all, const AttentionSizes& s, const BlockNumber& number)
      : batch(number.batch), head(number.head) {
    const int share = s.heads / s.kv_heads, ahead = s.keys - s.queries;
    rows = Tile::kOfKeys ? all.keys : s.queries;
    // Under a causal mask the last queries and the first keys have the most work: they start first.
    row = (Tile::kOfKeys ? number.tile : grid_x() - 1 - number.tile) * Tile::kRows;
    const int left = (rows - row + 63) / 64;
    groups = left < Tile::kGroups && !Tile::kSumsQueries ? left : Tile::kGroups;
    first_head = Tile::kOfKeys ? head * share : head / share;
    heads = Tile::kOfKeys ? share : 1;
    int begin = 0, end = Tile::kOfKeys ? s.queries : s.keys;
    if (s.causal && Tile::kOfKeys && row > ahead) begin = row - ahead;
    if (s.causal && !Tile::kOfKeys && row + Tile::kRows + ahead < end) end = row + Tile::kRows + ahead;
    first = begin / Tile::kKeys;
    if (Tile::kOfKeys && !Tile::kSumsQueries && row >= s.keys) end = 0;  // otherwise others wait for its turn
    tiles = (end + Tile::kKeys - 1) / Tile::kKeys - first;
    if (tiles < 0) tiles = 0;
    blocks = (rows + Tile::kRows - 1) / Tile::kRows;
    if (Tile::kSumsQueries) start = number.tile * tiles / blocks;
  }
  /// The first row of the i-th tile that streams by.
  DEV int token(int i) const { return (first + (start + i < tiles ? start + i : start + i - tiles)) * Tile::kKeys; }
  /// How many of the head's blocks come to a tile of queries before this one: those that begin nearest before it are
  /// the first.
  DEV int query_turn(int token) const {
    const int nearest = ((token / Tile::kKeys + 1) * blocks - 1) / tiles, turn = nearest - row / Tile::kRows;
    return turn < 0 ? turn + blocks : turn;
  }
};

/// The buffers and mbarriers of a tile.
template <class Tile>
struct GradientStage {
  uint32_t shared = shared_address(shared_memory());
  int stage = 0, phase = 0;
  DEV uint32_t tile(int operand) const { return shared + stage * Tile::kStageBytes + operand * Tile::kTileBytes; }
  /// lse of kKeys queries, times log2 e, and their delta.
  DEV float* sums() const {
    return reinterpret_cast<float*>(shared_memory() + Tile::kSumsAt + stage * Tile::kStageSums);
  }
  DEV uint32_t full() const { return shared + Tile::kBarriersAt + 16 * stage; }
  DEV uint32_t empty() const { return full() + 8; }
  DEV uint32_t held_full() const { return shared + Tile::kBarriersAt + 16 * Tile::kStages; }
  DEV void advance() {
    if (++stage == Tile::kStages) stage = 0, phase ^= 1;
  }
};

/// A row's lse as an exponent of 2, by which its weights are divided; infinity, for weights of 0, if the row sees
/// nothing.
DEV float exponent_of(float lse) {
  const float infinity = bits_to_float(0x7f800000u);
  return lse == -infinity ? infinity : lse * 1.4426950408889634f;
}

/// The producer thread.
template <class Tile, class Held0, class Held1, class Stream0, class Stream1, class Params>
DEV void gradient_produce(const Params& p, const GradientPlace<Tile>& at) {
  GradientStage<Tile> to;
  mbarrier_arrive_expecting(to.held_full(), at.groups * 2 * Tile::kHeldBytes);
  NO_UNROLL for (int group = 0; group < at.groups; ++group) {
    const uint32_t rows = to.shared + Tile::kGroupsAt + group * Tile::kGroupBytes;
    load_head_rows<Tile>(rows, Tile::kHeldBlock, Held0::map(p), to.held_full(), at.row + 64 * group, at.head, at.batch);
    load_head_rows<Tile>(rows + Tile::kHeldBytes, Tile::kHeldBlock, Held1::map(p), to.held_full(), at.row + 64 * group,
                         at.head, at.batch);
  }
  NO_UNROLL for (int head = 0; head < at.heads; ++head) NO_UNROLL for (int tile = 0; tile < at.tiles; ++tile) {
    mbarrier_wait(to.empty(), to.phase ^ 1);
    mbarrier_arrive_expecting(to.full(), Tile::kStageBytes);
    const int token = at.token(tile);
    load_head_rows<Tile>(to.tile(0), Tile::kKeyBlock, Stream0::map(p), to.full(), token, at.first_head + head,
                         at.batch);
    load_head_rows<Tile>(to.tile(1), Tile::kKeyBlock, Stream1::map(p), to.full(), token, at.first_head + head,
                         at.batch);
    to.advance();
  }
}

/// The warp that loads lse and delta of the streamed queries.
template <class Tile, class Sums, class Params>
DEV void gradient_sums(const Params& p, const GradientPlace<Tile>& at) {
  const AttentionSizes& s = p.sizes;
  GradientStage<Tile> to;
  NO_UNROLL for (int head = 0; head < at.heads; ++head) NO_UNROLL for (int tile = 0; tile < at.tiles; ++tile) {
    mbarrier_wait(to.empty(), to.phase ^ 1);
    float* const sums = to.sums();
    UNROLL for (int i = 0; i < Tile::kKeys; i += 32) {
      const int query = at.token(tile) + i + lane();
      const int row = (at.batch * s.heads + at.first_head + head) * s.queries + query;
      const bool there = query < s.queries;
      sums[i + lane()] = there ? exponent_of(Sums::lse(p, row)) : bits_to_float(0x7f800000u);
      sums[Tile::kKeys + i + lane()] = there ? Sums::delta(p, row) : 0.0f;
    }
    mbarrier_arrive(to.full());
    to.advance();
  }
}

/// Starts to = held * streamed^T.
template <class Tile, class T>
DEV void multiply_held(AttentionScores<Tile>& to, uint32_t held, uint32_t streamed) {
  const uint64_t a = wgmma_rows(held), b = wgmma_rows(streamed);
  UNROLL for (int k_block = 0; k_block < Tile::kDepth / 16; ++k_block)
      attention_products(T{}, to.v[0], a + k_block / 4 * (Tile::kHeldBlock / 16) + k_block % 4 * 2,
                         b + k_block / 4 * (Tile::kKeyBlock / 16) + k_block % 4 * 2, k_block > 0);
  wgmma_commit();
}
/// Starts sums += weights * streamed.
template <class Tile, class T>
DEV void add_streamed(MmaSums<Tile>& sums, const AttentionWeights<Tile>& weights, uint32_t streamed) {
  const uint64_t b = wgmma_columns(streamed, Tile::kKeyBlock);
  UNROLL for (int k_block = 0; k_block < Tile::kKeys / 16; ++k_block)
      held_products<true>(T{}, sums.v[0], weights.f[k_block][0], b + k_block * (2048 / 16), true);
  wgmma_commit();
}

/// Masks scores of queries that do not see their key. `row`, `token`: first row of the warpgroup and of the streamed
/// tile.
template <class Tile>
DEV void hide_unseen(const AttentionSizes& s, AttentionScores<Tile>& scores, int row, int token) {
  const int ahead = s.keys - s.queries;
  UNROLL for (int half = 0; half < 2; ++half) {
    const int mine = row + warp() % 4 * 16 + lane() / 4 + 8 * half, column = token + lane() % 4 * 2;
    // Streamed rows in [from, to) see this row, or are seen by it.
    const int from = Tile::kOfKeys && s.causal ? mine - ahead - column : 0;
    const int all = Tile::kOfKeys ? s.queries : s.keys;
    int to = !Tile::kOfKeys && s.causal && mine + ahead + 1 < all ? mine + ahead + 1 : all;
    if (Tile::kOfKeys && mine >= s.keys) to = 0;
    to -= column;
    UNROLL for (int j = 0; j < scores.kColumns; ++j)
        UNROLL for (int e = 0; e < 2; ++e) if (8 * j + e < from || 8 * j + e >= to)
            scores.v[0][j][2 * half + e] = scores.minus_infinity();
  }
}
/// Whether there are scores to mask.
template <class Tile>
DEV bool some_unseen(const AttentionSizes& s, int row, int token) {
  const int ahead = s.keys - s.queries;
  // Missing queries have weights of 0.
  if (Tile::kOfKeys) return row + 64 > s.keys || (s.causal && row + 63 > token + ahead);
  return token + Tile::kKeys > s.keys || (s.causal && token + Tile::kKeys - 1 > row + ahead);
}

/// lse and delta for each score: of the lane's two rows, or of the tile's columns.
template <class Tile>
struct RowSums {
  float exponent[2] = {}, delta[2] = {};

  template <class Sums, class Params>
  DEV void load(const Params& p, const GradientPlace<Tile>& at, int row) {
    UNROLL for (int half = 0; half < 2; ++half) {
      const int query = row + warp() % 4 * 16 + lane() / 4 + 8 * half;
      const int number = (at.batch * p.sizes.heads + at.head) * p.sizes.queries + query;
      const bool there = query < p.sizes.queries;
      exponent[half] = there ? exponent_of(Sums::lse(p, number)) : bits_to_float(0x7f800000u);
      delta[half] = there ? Sums::delta(p, number) : 0.0f;
    }
  }
};

/// Turns scores into weights.
template <class Tile>
DEV void weigh(AttentionScores<Tile>& scores, const RowSums<Tile>& rows, const float* columns, float scale) {
  UNROLL for (int j = 0; j < scores.kColumns; ++j) {
    Frag<float, 2> exponents;
    if constexpr (Tile::kOfKeys) exponents = load<float, 2>(columns + 8 * j + lane() % 4 * 2);
    UNROLL for (int e = 0; e < 4; ++e) {
      const float exponent = Tile::kOfKeys ? exponents.v[e % 2] : rows.exponent[e / 2];
      scores.v[0][j][e] = exp2_approximate(fused_multiply_add(scores.v[0][j][e], scale, -exponent));
    }
  }
}
/// Turns the gradient of weights into that of scores, without their scale.
template <class Tile>
DEV void to_scores(AttentionScores<Tile>& gradient, const AttentionScores<Tile>& weights, const RowSums<Tile>& rows,
                   const float* columns) {
  UNROLL for (int j = 0; j < gradient.kColumns; ++j) {
    Frag<float, 2> deltas;
    if constexpr (Tile::kOfKeys) deltas = load<float, 2>(columns + Tile::kKeys + 8 * j + lane() % 4 * 2);
    UNROLL for (int e = 0; e < 4; ++e) {
      const float delta = Tile::kOfKeys ? deltas.v[e % 2] : rows.delta[e / 2];
      gradient.v[0][j][e] = weights.v[0][j][e] * (gradient.v[0][j][e] - delta);
    }
  }
}
/// Zeroes it where weights are 0: missing rows may contain anything, and the delta of a query without keys is NaN.
template <class Tile>
DEV void clear_unseen(AttentionScores<Tile>& gradient, const AttentionScores<Tile>& weights) {
  UNROLL for (int j = 0; j < gradient.kColumns; ++j) UNROLL for (int e = 0; e < 4; ++e) {
    if (weights.v[0][j][e] == 0.0f) gradient.v[0][j][e] = 0.0f;
  }
}

/// Starts both held products of the i-th tile, and waits for the first.
template <class Tile, class T>
DEV void start_scores(const GradientStage<Tile>& here, uint32_t held, int i, const QueryParts<Tile>& parts,
                      AttentionScores<Tile>& scores, AttentionScores<Tile>& gradient) {
  wgmma_fence();
  multiply_held<Tile, T>(scores, held, here.tile(0));
  if constexpr (Tile::kSumsQueries) {
    if (i > 1) parts.put_part(i - 2);  // while this product runs
    wgmma_wait<0>();
    wgmma_fence();
  }
  multiply_held<Tile, T>(gradient, held + Tile::kHeldBytes, here.tile(1));
  if constexpr (!Tile::kSumsQueries) wgmma_wait<1>();
  wgmma_settle(scores.v[0]);
}

/// All streamed tiles, for one warpgroup's rows. first: sums of ds; second, for keys: of p.
template <class Tile, class T, class Sums, class Keys, class Params>
DEV void gradient_consume(const Params& p, const AttentionSizes& s, const GradientPlace<Tile>& at, MmaSums<Tile>& first,
                          MmaSums<Tile>& second) {
  const int group = warp_uniform() / 4, row = at.row + 64 * group;
  const float scale = s.scale * 1.4426950408889634f;
  GradientStage<Tile> here;
  RowSums<Tile> rows;
  if constexpr (!Tile::kOfKeys) rows.template load<Sums>(p, at, row);
  const uint32_t held = here.shared + Tile::kGroupsAt + group * Tile::kGroupBytes;
  mbarrier_wait(here.held_full(), 0);
  if constexpr (Keys::kGiven && Tile::kSumsQueries) clear_values<Tile>(held, row < s.keys ? s.keys - row : 0, group);
  QueryParts<Tile> parts{group};
  AttentionWeights<Tile> weights, rounded;
  const int count = at.heads * at.tiles;
  int tile = 0;
  NO_UNROLL for (int i = 0; i < count; ++i) {
    if (tile == at.tiles) tile = 0;
    const int token = at.token(tile++);
    AttentionScores<Tile> scores, gradient, product;
    mbarrier_wait(here.full(), here.phase);
    if constexpr (Keys::kGiven && !Tile::kOfKeys) clear_values<Tile>(here.tile(0), s.keys - token, group);
    start_scores<Tile, T>(here, held, i, parts, scores, gradient);
    const bool unseen = some_unseen<Tile>(s, row, token);
    if (unseen) hide_unseen(s, scores, row, token);
    weigh(scores, rows, here.sums(), scale);
    if constexpr (Tile::kOfKeys) {
      weights.round(T{}, scores);
      wgmma_fence();
      add_streamed<Tile, T>(second, weights, here.tile(1));
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    wgmma_settle(gradient.v[0]);
    to_scores(gradient, scores, rows, here.sums());
    if (Keys::kGiven && unseen) clear_unseen(gradient, scores);
    rounded.round(T{}, gradient);
    if constexpr (Tile::kSumsQueries) parts.put_scores(rounded, i);
    wgmma_fence();
    add_streamed<Tile, T>(first, rounded, here.tile(0));
    if constexpr (Tile::kSumsQueries) parts.template multiply<T>(product, i - 1);
    // The other warpgroups' products run meanwhile. If these were still in flight at the loop's back edge, the
    // assembler would serialize all of them.
    wgmma_wait<0>();
    wgmma_settle(first.v[0]);
    if constexpr (Tile::kOfKeys) wgmma_settle(second.v[0]);
    if constexpr (Tile::kOfKeys)
      mbarrier_arrive(here.empty());
    else
      leave(here.empty());
    here.advance();
    if constexpr (Tile::kSumsQueries) parts.keep(product, i - 1, s.scale);
  }
  if constexpr (Tile::kSumsQueries)
    if (count > 0) parts.template finish<T>(count, s.scale);
  UNROLL for (int j = 0; j < first.kColumns; ++j) UNROLL for (int e = 0; e < 4; ++e) first.v[0][j][e] *= s.scale;
}

template <class Tile, class Q, class K, class V, class G, class Sums, class Epilogue, class Keys = AllKeys,
          class QuerySums = NoQuerySums, class Params>
DEV void attention_gradient(const Params& p) {
  static_assert(Epilogue::kLanes == 1);
  const BlockNumber number = block_number<Tile>(p.sizes);
  AttentionSizes counted;
  if constexpr (Keys::kGiven) counted = sizes_of_entry<Keys>(p, number.batch);
  const AttentionSizes& s = Keys::kGiven ? counted : p.sizes;
  const GradientPlace<Tile> at(p.sizes, s, number);
  if (thread_index() == 0) {
    GradientStage<Tile> ring;
    mbarrier_init(ring.held_full(), 1);
    for (; ring.phase == 0; ring.advance()) {
      mbarrier_init(ring.full(), Tile::kFullArrivals);
      mbarrier_init(ring.empty(), Tile::kEmptyArrivals * at.groups);
    }
    if constexpr (Tile::kSumsQueries) QueryParts<Tile>().init();
    mbarrier_init_fence();
  }
  sync_block();
  griddep_wait();
  griddep_launch();
  if (warp_uniform() >= Tile::kSumWarps) {
    if constexpr (Tile::kMovesRegisters) registers_decrease<Tile::kCopyRegisters>();
    if constexpr (Tile::kOfKeys) {
      if (thread_index() == 32 * Tile::kSumWarps) gradient_produce<Tile, K, V, Q, G>(p, at);
      if (warp_uniform() == Tile::kSumWarps + 1) gradient_sums<Tile, Sums>(p, at);
      if constexpr (Tile::kSumsQueries)
        if (warp_uniform() >= Tile::kSumWarps + 2 && lane() == 0)
          gradient_add_parts<Tile, QuerySums>(p, at, warp_uniform() - Tile::kSumWarps - 2);
    } else {
      if (thread_index() == 32 * Tile::kSumWarps) gradient_produce<Tile, Q, G, K, V>(p, at);
    }
    return;
  }
  const int group = warp_uniform() / 4;
  if (group >= at.groups) return;
  if constexpr (Tile::kMovesRegisters) registers_increase<Tile::kRegisters>();
  MmaSums<Tile> first = {}, second = {};
  gradient_consume<Tile, typename Q::T, Sums, Keys>(p, s, at, first, second);
  // All are done with the rows whose memory slabs reuse: the warpgroup, or all of them if each reads all keys.
  if constexpr (Tile::kSumsQueries)
    sync_named(8, 128 * Tile::kGroups);
  else
    sync_named(8 + group, 128);
  const WarpPlace place{warp() * 16, 0,
                        reinterpret_cast<float*>(shared_memory() + Tile::kGroupsAt + group * Tile::kGroupBytes +
                                                 warp() % 4 * Tile::kSlabBytes)};
  const int of_head = at.batch * (Tile::kOfKeys ? s.kv_heads : s.heads) + at.head;
  const auto row_of = [&](int i) { return at.row + i < at.rows ? of_head * at.rows + at.row + i : -1; };
  mma_store<Tile, Epilogue>(p, first, place, row_of, 0, s.depth);
  if constexpr (Tile::kOfKeys) mma_store<Tile, Epilogue>(p, second, place, row_of, s.depth, 2 * s.depth);
}

}  // namespace tenon::device
