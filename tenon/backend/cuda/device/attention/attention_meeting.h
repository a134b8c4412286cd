// How attention_grouped.h's parts are combined: what a block, a segment and a head of keys are; chunks of blocks become
// segments, and segments the result, each relative to the highest top, in the order of their keys.
#pragma once
#include "tenon/backend/cuda/device/attention/attention_keys.h"
#include "tenon/backend/cuda/device/elements.h"

namespace tenon::device {

/// Heads of kDepth_ columns (a power of two, 16 to 128), up to kRows_ (8 or 16) rows per head of keys, and kBlocks_
/// blocks per segment, which form a cluster or combine through memory. A block takes kTurns_ chunks of keys, every
/// kBlocks_-th of the segment, one after the other.
template <int kDepth_, int kRows_, int kBlocks_, int kTurns_, bool kCluster_>
struct GroupedTile {
  static constexpr int kDepth = kDepth_, kRows = kRows_, kHalves = kRows / 8, kBlocks = kBlocks_, kTurns = kTurns_;
  static constexpr int kSegmentChunks = kBlocks * kTurns, kStages = kTurns > 1 ? 2 : 1;  ///< stages: chunks of values
  static constexpr bool kMeetsInMemory = kBlocks > 1 && !kCluster_;
  static constexpr int kKeys = 16, kFragments = kKeys / 8, kWarps = 8, kThreads = 32 * kWarps;  ///< keys: per warp
  static constexpr int kChunk = kWarps * kKeys, kSegmentKeys = kSegmentChunks * kChunk;  ///< keys per turn, per segment
  /// Blocks per multiprocessor, to bound registers.
  static constexpr int kResident = kDepth > 64 || kRows > 8 || kMeetsInMemory || kTurns > 1 ? 2 : 3;
  static constexpr int kGroups = kDepth / 16;                        ///< of 16 columns
  static constexpr int kUnit = 32, kUnits = kRows * kDepth / kUnit;  ///< of the result: a block owns every kBlocks-th
  static constexpr int kOwned = (kUnits + kBlocks - 1) / kBlocks, kUnitsOfRow = kDepth > kUnit ? kDepth / kUnit : 1;
  static constexpr int kClasses = 4;  ///< lanes among which a row's sum of weights is split
  // Shared memory, in words: values of chunks; weights, in lines padded against bank conflicts; highest scores and sums
  // of weights per warp; tops; for each chunk of a cluster its sums for this block, its tops and totals; a word.
  static constexpr int kValueBytes = kChunk * kDepth * 2, kWeightsAt = kStages * kValueBytes / 4,
                       kLine = (kChunk + 8) / 2;
  static constexpr int kHighestAt = kWeightsAt + kRows * kLine, kKeyTilesAt = kHighestAt + kWarps * kRows;
  static constexpr int kTopsAt = kKeyTilesAt + kWarps * kRows * kClasses, kFoundAt = kTopsAt + kRows;
  static constexpr int kFoundWords = kOwned * kUnit;  ///< of a chunk
  static constexpr int kTopsFoundAt = kFoundAt + (kMeetsInMemory ? 0 : kSegmentChunks * kFoundWords);
  static constexpr int kTotalsFoundAt = kTopsFoundAt + (kMeetsInMemory ? 0 : kSegmentChunks * kRows);
  static constexpr int kCameAt = kTotalsFoundAt + (kMeetsInMemory ? 0 : kSegmentChunks * kRows * kClasses);
  static constexpr int kSharedBytes = 4 * (kCameAt + 4);
  /// What a chunk stores in the workspace: sums, tops, totals.
  static constexpr int kLeft = kRows * (kDepth + 1 + kClasses);
  /// Most floats that a segment stores, for each epilogue call: sums, top, totals.
  static constexpr int kSegmentLeft = (2 + kClasses) * kRows * kDepth;
  static_assert(kDepth >= 16 && kDepth <= 128 && (kDepth & (kDepth - 1)) == 0 && kSegmentChunks <= 16);

  /// The chunk of the segment that a warp works on in a turn, and the first of its keys in the segment.
  DEV static int chunk(int block, int turn) { return block + turn * kBlocks; }
  DEV static int first_key(int block, int turn) { return chunk(block, turn) * kChunk + warp() * kKeys; }
};

DEV float no_score() { return bits_to_float(0xff800000u); }

/// The part of the problem of a block and its warps.
template <class Tile>
struct GroupedPlace {
  int rows, q_row, kv_row;  ///< rows of the group; row 0 of q and of k and v
  int capacity;
  int head;                      ///< of keys, over the batch
  int block, segment, segments;  ///< block in its segment; segments: those with keys, at least one
  int chunks;                    ///< of the segment: those with keys

  DEV explicit GroupedPlace(const AttentionSizes& s)
      : rows(s.heads / s.kv_heads * s.queries),
        q_row((block_z() * s.kv_heads + block_y()) * rows),
        kv_row((block_z() * s.kv_heads + block_y()) * (s.capacity ? s.capacity : s.keys)),
        capacity(s.capacity ? s.capacity : s.keys),
        head(block_z() * s.kv_heads + block_y()),
        block(block_x() % Tile::kBlocks),
        segment(block_x() / Tile::kBlocks),
        segments(s.keys > Tile::kSegmentKeys ? (s.keys + Tile::kSegmentKeys - 1) / Tile::kSegmentKeys : 1),
        chunks(s.keys - segment * Tile::kSegmentKeys >= Tile::kSegmentKeys
                   ? Tile::kSegmentChunks
                   : (s.keys - segment * Tile::kSegmentKeys + Tile::kChunk - 1) / Tile::kChunk) {}
  /// Number of keys that row r sees.
  DEV static int sees(const AttentionSizes& s, int r) {
    return s.causal ? r % s.queries + 1 + s.keys - s.queries : s.keys;
  }
  /// The chunk of the segment that the block takes in a turn.
  DEV int chunk(int turn) const { return Tile::chunk(block, turn); }
  /// Whether it has keys.
  DEV bool has_keys(int turn) const { return turn < Tile::kTurns && chunk(turn) < chunks; }
  /// The first key of that chunk, and of the warp's key tile of it.
  DEV int first_of_chunk(int turn) const { return segment * Tile::kSegmentKeys + chunk(turn) * Tile::kChunk; }
  DEV int first_key(int turn) const { return segment * Tile::kSegmentKeys + Tile::first_key(block, turn); }
};

/// Counters: blocks arrived, per segment if they combine through memory; segments arrived, per head and block that
/// finishes columns; keys that each head had when the kernel ran last.
template <class Tile>
struct GroupedCounters {
  unsigned *of_segments, *of_heads, *keys;
  DEV GroupedCounters(const SplitK& split, const GroupedPlace<Tile>& at) {
    const int heads = grid_y() * grid_z(), segments = grid_x() / Tile::kBlocks;
    of_segments = split.counters + at.head * segments + at.segment;
    of_heads = split.counters + heads * segments + at.head * Tile::kBlocks + (Tile::kMeetsInMemory ? 0 : at.block);
    keys = split.counters + heads * (segments + Tile::kBlocks) + at.head;
  }
};

/// A row's part of the result: sums relative to `top`, an exponent of 2, and the sums of weights over every fourth pair
/// of keys.
template <int kWidth>
struct GroupedPart {
  float top = no_score(), totals[4] = {}, sums[kWidth] = {};

  DEV float share_of(float other) const { return exp2_approximate(other - (top == no_score() ? 0.0f : top)); }
  DEV float total() const { return (totals[0] + totals[1]) + (totals[2] + totals[3]); }
};

/// Combines through the shared memory of a cluster's blocks (or of one block). Each block receives the units that it
/// finishes, [chunk][unit][column], and all tops and totals, [chunk][row]. `chunk`: the one that is being passed on.
template <class Tile>
struct GroupedCluster {
  static constexpr int kBlocks = Tile::kBlocks, kOwned = Tile::kOwned;
  float* shared;
  int block, chunk = 0;

  DEV GroupedCluster(const AttentionSizes&, const GroupedPlace<Tile>& at, float* shared)
      : shared(shared), block(at.block) {}
  DEV int first() const { return block; }
  static constexpr int kNext = Tile::kBlocks;
  DEV const float* sums(int chunk, int unit) const {
    return shared + Tile::kFoundAt + chunk * Tile::kFoundWords + unit / kBlocks * Tile::kUnit;
  }
  DEV float top(int chunk, int row) const { return shared[Tile::kTopsFoundAt + chunk * Tile::kRows + row]; }
  DEV const float* totals(int chunk, int row) const {
    return shared + Tile::kTotalsFoundAt + (chunk * Tile::kRows + row) * Tile::kClasses;
  }
  /// Sends a sum to the block that finishes it.
  DEV void put(int row, int column, float sum) const {
    const int i = row * Tile::kDepth + column, unit = i / Tile::kUnit;
    give(sums(chunk, unit) + i % Tile::kUnit, sum, unit % kBlocks);
  }
  /// Sends a row's top, or one of its totals, to the block that finishes unit `unit` of the row.
  DEV void put_top(int row, int unit, float top) const {
    give(shared + Tile::kTopsFoundAt + chunk * Tile::kRows + row, top, ends(row, unit));
  }
  DEV void put_total(int row, int unit, int number, float total) const {
    give(totals(chunk, row) + number, total, ends(row, unit));
  }
  DEV static int ends(int row, int unit) { return (row * Tile::kDepth / Tile::kUnit + unit) % kBlocks; }
  DEV static void give(const float* to, float value, int block) {
    if constexpr (kBlocks > 1)
      store_at(shared_address(to), value, block);
    else
      *const_cast<float*>(to) = value;
  }
  /// True if this block finishes anything.
  DEV bool meet() const {
    if constexpr (kBlocks > 1)
      sync_cluster();
    else
      sync_block();
    return true;
  }
};
/// Counts arrivals in memory, after all threads of the block have stored their part. True in the last of `all`, which
/// then sees what the others stored.
template <class Tile>
DEV bool grouped_last(unsigned* counter, int all, float* shared) {
  fence_device();
  sync_block();
  uint32_t* came = reinterpret_cast<uint32_t*>(shared + Tile::kCameAt);
  if (thread_index() == 0) *came = atomic_add(counter, 1u);
  sync_block();
  if (*came != static_cast<uint32_t>(all - 1)) return false;
  if (thread_index() == 0) *counter = 0;
  fence_device();
  return true;
}
/// The same through memory: the last block of a segment finishes all of it.
template <class Tile>
struct GroupedMemory {
  unsigned* counter;
  float *left, *shared;  ///< left: [chunk][sums, tops, totals]
  int chunk = 0;

  DEV GroupedMemory(const AttentionSizes& s, const GroupedPlace<Tile>& at, float* shared)
      : counter(GroupedCounters<Tile>(s.split, at).of_segments),
        left(s.split.workspace + (static_cast<int64_t>(at.head) * (grid_x() / Tile::kBlocks) + at.segment) *
                                     (Tile::kSegmentChunks * Tile::kLeft)),
        shared(shared) {}
  DEV static int first() { return 0; }
  static constexpr int kNext = 1;
  DEV const float* sums(int chunk, int unit) const { return left + chunk * Tile::kLeft + unit * Tile::kUnit; }
  DEV float top(int chunk, int row) const { return left[chunk * Tile::kLeft + Tile::kRows * Tile::kDepth + row]; }
  DEV const float* totals(int chunk, int row) const {
    return left + chunk * Tile::kLeft + Tile::kRows * (Tile::kDepth + 1) + row * Tile::kClasses;
  }
  DEV void put(int row, int column, float sum) const { left[chunk * Tile::kLeft + row * Tile::kDepth + column] = sum; }
  DEV void put_top(int row, int unit, float top) const {
    if (unit == 0) left[chunk * Tile::kLeft + Tile::kRows * Tile::kDepth + row] = top;
  }
  DEV void put_total(int row, int unit, int number, float total) const {
    if (unit == 0) const_cast<float*>(totals(chunk, row))[number] = total;
  }
  DEV bool meet() const { return grouped_last<Tile>(counter, Tile::kBlocks, shared); }
};
template <class Tile, bool kInMemory = Tile::kMeetsInMemory>
struct GroupedMeeting {
  using Type = GroupedCluster<Tile>;
};
template <class Tile>
struct GroupedMeeting<Tile, true> {
  using Type = GroupedMemory<Tile>;
};

/// Divides, and passes some columns of a row to the epilogue.
template <class Epilogue, class Lse, class Params>
DEV void grouped_store(const Params& p, int row, int column, const GroupedPart<Epilogue::kWidth>& part) {
  const float total = part.total();
  if constexpr (Lse::kWanted)
    if (column == 0)
      Lse::store(p, row, (total == 0.0f ? part.top : part.top + log2_approximate(total)) * 0.6931471805599453f);
  Frag<float, Epilogue::kWidth> acc[1];
  const float share = reciprocal_approximate(total);
  UNROLL for (int c = 0; c < Epilogue::kWidth; ++c) acc[0].v[c] = part.sums[c] * share;
  Epilogue::store(p, row, column, Epilogue::compute(p, row, column, acc));
}

/// The epilogue calls of a block: call i is number `index`, counted over all rows.
template <class Tile, class Meeting, int kWidth>
struct GroupedCalls {
  static constexpr int kOfUnit = Tile::kUnit / kWidth;
  int first, calls;
  DEV GroupedCalls(const GroupedPlace<Tile>& at, const Meeting& meeting) : first(meeting.first()) {
    const int units = (at.rows * Tile::kDepth + Tile::kUnit - 1) / Tile::kUnit;
    calls = (units - first + Meeting::kNext - 1) / Meeting::kNext * kOfUnit;
  }
  DEV int unit(int i) const { return first + i / kOfUnit * Meeting::kNext; }
  DEV static int inside(int i) { return i % kOfUnit * kWidth; }
  DEV int index(int i) const { return unit(i) * Tile::kUnit + inside(i); }
};

/// Finishes the block's part of the segment: passes it to the epilogue or, with several segments, to the workspace,
/// where the last block combines them with a warp per call: lanes load segments, which are added one after another.
template <class Tile, class Epilogue, class Lse, class Params, class Meeting>
DEV void grouped_end(const Params& p, const AttentionSizes& s, const GroupedPlace<Tile>& at, const Meeting& meeting,
                     float* shared) {
  constexpr int kWidth = Epilogue::kWidth, kClasses = Tile::kClasses, kRecord = kWidth + 1 + kClasses;
  const GroupedCalls<Tile, Meeting, kWidth> calls(at, meeting);
  const int all_segments = grid_x() / Tile::kBlocks;
  // After what blocks store: [head][segment][epilogue call][sums, top, totals].
  float* const left = s.split.workspace +
                      (Tile::kMeetsInMemory ? static_cast<int64_t>(grid_y()) * grid_z() * all_segments *
                                                  Tile::kSegmentChunks * Tile::kLeft
                                            : 0) +
                      static_cast<int64_t>(at.head) * all_segments * Tile::kSegmentLeft;
  const auto record = [&](int segment, int i) {
    return left + static_cast<int64_t>(segment) * Tile::kSegmentLeft + calls.index(i) / kWidth * kRecord;
  };
  for (int i = thread_index(); i < calls.calls; i += Tile::kThreads) {
    const int row = calls.index(i) / Tile::kDepth, unit = calls.unit(i), inside = calls.inside(i);
    if (row >= at.rows) continue;
    GroupedPart<kWidth> part;
    UNROLL for (int k = 0; k < Tile::kSegmentChunks; ++k) if (k < at.chunks) part.top =
        max_number(part.top, meeting.top(k, row));
    UNROLL for (int k = 0; k < Tile::kSegmentChunks; ++k) if (k < at.chunks) {
      const float share = part.share_of(meeting.top(k, row));
      const auto x = device::load<float, kWidth>(meeting.sums(k, unit) + inside);
      const auto totals = device::load<float, kClasses>(meeting.totals(k, row));
      UNROLL for (int c = 0; c < kWidth; ++c) part.sums[c] += share * x.v[c];
      UNROLL for (int c = 0; c < kClasses; ++c) part.totals[c] += share * totals.v[c];
    }
    if (at.segments == 1) {
      grouped_store<Epilogue, Lse>(p, at.q_row + row, calls.index(i) % Tile::kDepth, part);
      continue;
    }
    float* const to = record(at.segment, i);
    UNROLL for (int c = 0; c < kWidth; ++c) to[c] = part.sums[c];
    to[kWidth] = part.top;
    UNROLL for (int c = 0; c < kClasses; ++c) to[kWidth + 1 + c] = part.totals[c];
  }
  if (at.segments == 1 || !grouped_last<Tile>(GroupedCounters<Tile>(s.split, at).of_heads, at.segments, shared)) return;
  NO_UNROLL for (int i = warp(); i < calls.calls; i += Tile::kWarps) {
    const int row = calls.index(i) / Tile::kDepth;
    if (row >= at.rows) continue;
    GroupedPart<kWidth> all;
    NO_UNROLL for (int segment = lane(); segment < at.segments; segment += 32) all.top =
        max_number(all.top, record(segment, i)[kWidth]);
    UNROLL for (int mask = 16; mask > 0; mask /= 2) all.top = max_number(all.top, shuffle_xor(all.top, mask));
    NO_UNROLL for (int first = 0; first < at.segments; first += 32) {
      float mine[kRecord] = {};
      if (first + lane() < at.segments) {
        const float* const from = record(first + lane(), i);
        const float share = all.share_of(from[kWidth]);
        UNROLL for (int c = 0; c < kRecord; ++c) mine[c] = share * from[c];
      }
      NO_UNROLL for (int segment = 0; segment < 32 && first + segment < at.segments; ++segment) {
        UNROLL for (int c = 0; c < kWidth; ++c) all.sums[c] += shuffle(mine[c], segment);
        UNROLL for (int c = 0; c < kClasses; ++c) all.totals[c] += shuffle(mine[kWidth + 1 + c], segment);
      }
    }
    if (lane() == 0) grouped_store<Epilogue, Lse>(p, at.q_row + row, calls.index(i) % Tile::kDepth, all);
  }
}

}  // namespace tenon::device
