// Where attention_grouped.h's parts meet: what a block, a run and a head of keys are, and how warps, blocks and runs
// are joined, each relative to the highest top, in an order that their numbers fix.
#pragma once
#include "tenon/backend/cuda/device/attention_keys.h"
#include "tenon/backend/cuda/device/elements.h"

namespace tenon::device {

/// Heads of kDepth_ columns (a power of two, 16 to 128), up to kRows_ (8 or 16) rows a head of keys, whose kBlocks_
/// blocks of kWarps_ warps are one cluster, or meet in memory.
template <int kDepth_, int kRows_, int kWarps_, int kBlocks_, bool kCluster_>
struct GroupedTile {
  static constexpr int kDepth = kDepth_, kRows = kRows_, kHalves = kRows / 8;
  static constexpr int kWarps = kWarps_, kThreads = 32 * kWarps, kBlocks = kBlocks_;
  static constexpr bool kMeetsInMemory = kBlocks > 1 && !kCluster_;
  static constexpr int kResident =
      kDepth > 64 ? 1 : 512 / kThreads;  ///< blocks that a multiprocessor has registers for
  static constexpr int kKeys = 16, kFragments = kKeys / 8, kSteps = kKeys / 16;  ///< of a piece
  static constexpr int kTurns = 2;                                               ///< pieces that a warp has of a run
  static constexpr int kStep = kWarps * kBlocks * kKeys, kRunKeys = kTurns * kStep;  ///< keys of all warps, of a run
  static constexpr int kPieces = (kDepth + 31) / 32;                                 ///< of 32 columns of a key
  static constexpr int kParts = (kDepth + 63) / 64;                                  ///< of 64 columns of a value
  static constexpr int kUnit = 32, kUnits = kRows * kDepth / kUnit;  ///< of the result: a block has every kBlocks-th
  static constexpr int kOwned = (kUnits + kBlocks - 1) / kBlocks;
  // Shared memory, in floats: sums by warp, lines apart so that rows meet no bank; tops and totals by warp; of each
  // block of a cluster what it found for this one, its tops and totals; a word.
  static constexpr int kLine = kDepth + 4;
  static constexpr int kSumsAt = 0, kTopsAt = kWarps * kRows * kLine, kTotalsAt = kTopsAt + kWarps * kRows;
  static constexpr int kFoundAt = kTotalsAt + kWarps * kRows;
  static constexpr int kTopsFoundAt = kFoundAt + (kMeetsInMemory ? 0 : kBlocks * kOwned * kUnit);
  static constexpr int kTotalsFoundAt = kTopsFoundAt + (kMeetsInMemory ? 0 : kBlocks * kRows);
  static constexpr int kCameAt = kTotalsFoundAt + (kMeetsInMemory ? 0 : kBlocks * kRows);
  static constexpr int kSharedBytes = 4 * (kCameAt + 4);
  /// What a block leaves in the workspace: sums, tops, totals.
  static constexpr int kLeft = kRows * (kDepth + 2);
  /// What a run leaves of each call of the epilogue: sums, top, total; at most so many floats.
  static constexpr int kRunLeft = 3 * kRows * kDepth;
  static_assert(kDepth >= 16 && kDepth <= 128 && (kDepth & (kDepth - 1)) == 0 && kBlocks <= 16);
};

DEV float no_score() { return bits_to_float(0xff800000u); }

/// Which part of the problem a block and its warps have.
template <class Tile>
struct GroupedPlace {
  int rows, q_row, kv_row;  ///< of the group; row 0 of each
  int capacity;
  int head;              ///< of keys, over the batch
  int block, run, runs;  ///< in its run; runs: those that have keys, or one

  DEV explicit GroupedPlace(const AttentionSizes& s)
      : rows(s.heads / s.kv_heads * s.queries),
        q_row((block_z() * s.kv_heads + block_y()) * rows),
        kv_row((block_z() * s.kv_heads + block_y()) * (s.capacity ? s.capacity : s.keys)),
        capacity(s.capacity ? s.capacity : s.keys),
        head(block_z() * s.kv_heads + block_y()),
        block(block_x() % Tile::kBlocks),
        run(block_x() / Tile::kBlocks),
        runs(s.keys > Tile::kRunKeys ? (s.keys + Tile::kRunKeys - 1) / Tile::kRunKeys : 1) {}
  /// Keys that row r sees.
  DEV static int sees(const AttentionSizes& s, int r) {
    return s.causal ? r % s.queries + 1 + s.keys - s.queries : s.keys;
  }
  /// The first key of the warp's first piece; the next piece is Tile::kStep behind it.
  DEV int first_key() const { return run * Tile::kRunKeys + (warp() * Tile::kBlocks + block) * Tile::kKeys; }
};

/// Counters: blocks that have come, of each run where they meet in memory; runs that have come, of each head and block
/// that ends something; keys of each head, the last time.
template <class Tile>
struct GroupedCounters {
  unsigned *of_runs, *of_heads, *keys;
  DEV GroupedCounters(const SplitK& split, const GroupedPlace<Tile>& at) {
    const int heads = grid_y() * grid_z(), runs = grid_x() / Tile::kBlocks;
    of_runs = split.counters + at.head * runs + at.run;
    of_heads = split.counters + heads * runs + at.head * Tile::kBlocks + (Tile::kMeetsInMemory ? 0 : at.block);
    keys = split.counters + heads * (runs + Tile::kBlocks) + at.head;
  }
};

/// A row's part of the result: sums relative to `top`, a power of two, and the sum of weights.
template <int kRun>
struct GroupedPart {
  float top, total;
  float sums[kRun];
};
/// kCount parts of a row together, in their order: top(i), total(i), and add(i, share, sums) that adds its sums.
template <int kCount, int kRun, class Top, class Total, class Add>
DEV GroupedPart<kRun> grouped_joined(const Top& top, const Total& total, const Add& add) {
  GroupedPart<kRun> all = {no_score(), 0.0f, {}};
  UNROLL for (int i = 0; i < kCount; ++i) all.top = max_number(all.top, top(i));
  const float origin = all.top == no_score() ? 0.0f : all.top;
  UNROLL for (int i = 0; i < kCount; ++i) {
    const float share = exp2_approximate(top(i) - origin);
    all.total += share * total(i);
    add(i, share, all.sums);
  }
  return all;
}
/// Of this block, from its warps'.
template <class Tile>
DEV GroupedPart<1> grouped_part(const float* shared, int row, int column) {
  const auto of = [&](int w) { return w * Tile::kRows + row; };
  return grouped_joined<Tile::kWarps, 1>([&](int w) { return shared[Tile::kTopsAt + of(w)]; },
                                         [&](int w) { return shared[Tile::kTotalsAt + of(w)]; },
                                         [&](int w, float share, float(&sums)[1]) {
                                           sums[0] += share * shared[Tile::kSumsAt + of(w) * Tile::kLine + column];
                                         });
}

/// Where the parts of a head's blocks meet: in the shared memory of a cluster's blocks (or of one block), each of which
/// gets the units that it ends, [block][unit][column], and all tops and totals, [block][row].
template <class Tile>
struct GroupedCluster {
  static constexpr int kBlocks = Tile::kBlocks, kOwned = Tile::kOwned;
  float* shared;

  int block;

  DEV GroupedCluster(const AttentionSizes&, const GroupedPlace<Tile>& at, float* shared)
      : shared(shared), block(at.block) {}
  DEV int first() const { return block; }
  static constexpr int kNext = Tile::kBlocks;
  DEV const float* sums(int block, int unit) const {
    return shared + Tile::kFoundAt + (block * kOwned + unit / kBlocks) * Tile::kUnit;
  }
  DEV float top(int block, int row) const { return shared[Tile::kTopsFoundAt + block * Tile::kRows + row]; }
  DEV float total(int block, int row) const { return shared[Tile::kTotalsFoundAt + block * Tile::kRows + row]; }
  /// Value `i` of the rows to the block that ends it, and a row's top and total to all, one block a value.
  DEV void put(int i, const GroupedPart<1>& part) const {
    const int unit = i / Tile::kUnit;
    give(sums(block, unit) + i % Tile::kUnit, part.sums[0], unit % kBlocks);
    const int told = i % Tile::kDepth, to = block * Tile::kRows + i / Tile::kDepth;
    if (told >= kBlocks) return;
    give(shared + Tile::kTopsFoundAt + to, part.top, told);
    give(shared + Tile::kTotalsFoundAt + to, part.total, told);
  }
  DEV static void give(const float* to, float value, int block) {
    if constexpr (kBlocks > 1)
      store_at(shared_address(to), value, block);
    else
      *const_cast<float*>(to) = value;
  }
  /// True where this block ends something.
  DEV bool meet() const {
    if constexpr (kBlocks > 1)
      sync_cluster();
    else
      sync_block();
    return true;
  }
};
/// Counts who comes to a place in memory, behind what all threads of the block have stored there. True in the last of
/// `all`, which finds what the others stored.
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
/// The same in memory: the last block of a run ends all of it.
template <class Tile>
struct GroupedMemory {
  unsigned* counter;
  float *left, *shared;  ///< [block][sums, tops, totals]
  int block;

  DEV GroupedMemory(const AttentionSizes& s, const GroupedPlace<Tile>& at, float* shared)
      : counter(GroupedCounters<Tile>(s.split, at).of_runs),
        left(s.split.workspace +
             (static_cast<int64_t>(at.head) * (grid_x() / Tile::kBlocks) + at.run) * (Tile::kBlocks * Tile::kLeft)),
        shared(shared),
        block(at.block) {}
  DEV static int first() { return 0; }
  static constexpr int kNext = 1;
  DEV const float* sums(int block, int unit) const { return left + block * Tile::kLeft + unit * Tile::kUnit; }
  DEV float top(int block, int row) const { return left[block * Tile::kLeft + Tile::kRows * Tile::kDepth + row]; }
  DEV float total(int block, int row) const {
    return left[block * Tile::kLeft + Tile::kRows * (Tile::kDepth + 1) + row];
  }
  DEV void put(int i, const GroupedPart<1>& part) const {
    float* to = left + block * Tile::kLeft;
    to[i] = part.sums[0];
    if (i % Tile::kDepth) return;
    to[Tile::kRows * Tile::kDepth + i / Tile::kDepth] = part.top;
    to[Tile::kRows * (Tile::kDepth + 1) + i / Tile::kDepth] = part.total;
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

/// Divides, and gives some columns of a row to the epilogue.
template <class Epilogue, class Lse, class Params>
DEV void grouped_store(const Params& p, int row, int column, const GroupedPart<Epilogue::kRun>& part) {
  if constexpr (Lse::kWanted)
    if (column == 0)
      Lse::store(p, row,
                 (part.total == 0.0f ? part.top : part.top + log2_approximate(part.total)) * 0.6931471805599453f);
  Frag<float, Epilogue::kRun> acc[1];
  const float share = reciprocal_approximate(part.total);
  UNROLL for (int c = 0; c < Epilogue::kRun; ++c) acc[0].v[c] = part.sums[c] * share;
  Epilogue::store(p, row, column, Epilogue::compute(p, row, column, acc));
}

/// The calls of the epilogue that a block makes: call i is that of `index`, counted over the rows.
template <class Tile, class Meeting, int kRun>
struct GroupedCalls {
  static constexpr int kOfUnit = Tile::kUnit / kRun;
  int first, calls;
  DEV GroupedCalls(const GroupedPlace<Tile>& at, const Meeting& meeting) : first(meeting.first()) {
    const int units = (at.rows * Tile::kDepth + Tile::kUnit - 1) / Tile::kUnit;
    calls = (units - first + Meeting::kNext - 1) / Meeting::kNext * kOfUnit;
  }
  DEV int unit(int i) const { return first + i / kOfUnit * Meeting::kNext; }
  DEV static int inside(int i) { return i % kOfUnit * kRun; }
  DEV int index(int i) const { return unit(i) * Tile::kUnit + inside(i); }
};

/// The run's part of what the block ends: to the epilogue, or where there are several runs to the workspace, where the
/// last block joins them, a warp each call.
template <class Tile, class Epilogue, class Lse, class Params, class Meeting>
DEV void grouped_end(const Params& p, const AttentionSizes& s, const GroupedPlace<Tile>& at, const Meeting& meeting,
                     float* shared) {
  constexpr int kRun = Epilogue::kRun, kRecord = kRun + 2;
  const GroupedCalls<Tile, Meeting, kRun> calls(at, meeting);
  const int all_runs = grid_x() / Tile::kBlocks;
  // Behind what blocks leave: [head][run][call of the rows][sums, top, total].
  float* const left =
      s.split.workspace +
      (Tile::kMeetsInMemory ? static_cast<int64_t>(grid_y()) * grid_z() * all_runs * Tile::kBlocks * Tile::kLeft : 0) +
      static_cast<int64_t>(at.head) * all_runs * Tile::kRunLeft;
  const auto record = [&](int run, int i) {
    return left + static_cast<int64_t>(run) * Tile::kRunLeft + calls.index(i) / kRun * kRecord;
  };
  for (int i = thread_index(); i < calls.calls; i += Tile::kThreads) {
    const int row = calls.index(i) / Tile::kDepth, unit = calls.unit(i), inside = calls.inside(i);
    if (row >= at.rows) continue;
    const GroupedPart<kRun> part = grouped_joined<Tile::kBlocks, kRun>(
        [&](int b) { return meeting.top(b, row); }, [&](int b) { return meeting.total(b, row); },
        [&](int b, float share, float(&sums)[kRun]) {
          const auto x = device::load<float, kRun>(meeting.sums(b, unit) + inside);
          UNROLL for (int c = 0; c < kRun; ++c) sums[c] += share * x.v[c];
        });
    if (at.runs == 1) {
      grouped_store<Epilogue, Lse>(p, at.q_row + row, calls.index(i) % Tile::kDepth, part);
      continue;
    }
    float* const to = record(at.run, i);
    UNROLL for (int c = 0; c < kRun; ++c) to[c] = part.sums[c];
    to[kRun] = part.top, to[kRun + 1] = part.total;
  }
  if (at.runs == 1 || !grouped_last<Tile>(GroupedCounters<Tile>(s.split, at).of_heads, at.runs, shared)) return;
  NO_UNROLL for (int i = warp(); i < calls.calls; i += Tile::kWarps) {
    const int row = calls.index(i) / Tile::kDepth;
    if (row >= at.rows) continue;
    GroupedPart<kRun> all = {no_score(), 0.0f, {}};
    NO_UNROLL for (int run = lane(); run < at.runs; run += 32) all.top = max_number(all.top, record(run, i)[kRun]);
    UNROLL for (int mask = 16; mask > 0; mask /= 2) all.top = max_number(all.top, shuffle_xor(all.top, mask));
    const float origin = all.top == no_score() ? 0.0f : all.top;
    NO_UNROLL for (int run = lane(); run < at.runs; run += 32) {
      const float* const from = record(run, i);
      const float share = exp2_approximate(from[kRun] - origin);
      all.total += share * from[kRun + 1];
      UNROLL for (int c = 0; c < kRun; ++c) all.sums[c] += share * from[c];
    }
    UNROLL for (int mask = 16; mask > 0; mask /= 2) {
      all.total += shuffle_xor(all.total, mask);
      UNROLL for (int c = 0; c < kRun; ++c) all.sums[c] += shuffle_xor(all.sums[c], mask);
    }
    if (lane() == 0) grouped_store<Epilogue, Lse>(p, at.q_row + row, calls.index(i) % Tile::kDepth, all);
  }
}

}  // namespace tenon::device
