// The sample skeleton (core/draw.h defines it): a block draws the token of a row. Long rows take a cluster of blocks,
// since one multiprocessor alone reads them slowly. Each warp has a part of the row, which stays in shared memory if it
// fits, so that memory is read once. Nothing is sorted: the scores to keep follow from a threshold, found bit by bit
// over an integer key that sorts like the scores. Scores among which the threshold may lie are kept apart if few
// enough; else every bit rereads the row.
#pragma once
#include "tenon/backend/cuda/device/elements.h"
#include "tenon/backend/cuda/device/launches/sample_sizes.h"
#include "tenon/core/philox.h"

namespace tenon::device {

/// An integer key that sorts like the scores; both zeros have the same key.
DEV uint32_t order_of(float score) {
  const uint32_t bits = float_to_bits(score + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/// Reductions over the threads of a row, in kBlocks blocks, always in the same order.
template <int kBlocks>
struct SampleTeam {
  static constexpr int kWarps = kBlocks * sample_warps(kBlocks);
  double* exchange;      ///< two per warp
  mutable int turn = 0;  ///< double buffer: the previous values may still be read

  DEV static int block() {
    if constexpr (kBlocks > 1)
      return cluster_rank();
    else
      return 0;
  }
  /// Numbers of the warp and of the thread within the row's.
  DEV static int warp_of_row() { return block() * sample_warps(kBlocks) + warp(); }
  DEV static int thread_of_row() { return 32 * warp_of_row() + lane(); }

  /// Publishes a value per warp; returns the values of all warps.
  template <class T>
  DEV const T* of_warps(T x) const {
    T* place = reinterpret_cast<T*>(exchange + turn);
    turn ^= kWarps;
    if constexpr (kBlocks > 1) {
      const uint32_t there = shared_address(place + warp_of_row());
      const auto& words = reinterpret_cast<const float(&)[sizeof(T) / 4]>(x);
      if (lane() < kBlocks) {
        UNROLL for (int i = 0; i < static_cast<int>(sizeof(T) / 4); ++i) store_at(there + 4 * i, words[i], lane());
      }
      sync_cluster();
    } else {
      if (lane() == 0) place[warp()] = x;
      sync_block();
    }
    return place;
  }
  template <class T, class Join>
  DEV static T of_lanes(T x, const Join& join) {
    UNROLL for (int mask = 16; mask > 0; mask >>= 1) x = join(x, shuffle_xor(x, mask));
    return x;
  }
  template <class T, class Join>
  DEV T of_threads(T x, const Join& join) const {
    const T* all = of_warps(of_lanes(x, join));
    T y = all[lane()];
    UNROLL for (int w = 32; w < kWarps; w += 32) y = join(y, all[w + lane()]);
    return of_lanes(y, join);
  }
  DEV double sum(double x) const {
    return of_threads(x, [](double a, double b) { return a + b; });
  }
};

/// The largest score, and the first token that has it; NaN if a score is.
struct SampleTop {
  float score;
  int token;
};

/// A row's scores, divided by the temperature. Scores::eval(p, row, token).
template <class Scores, class Team_, class Params>
struct SampleRow {
  using Team = Team_;
  const Params& p;
  const Team& team;
  float *kept, *held;  ///< this warp's
  int row;
  float top = 0, own = bits_to_float(0xff800000u);  ///< own: the largest that this thread has seen, not divided
  Quotients temperature{1.0f};
  uint32_t least = 0;  ///< key of the smallest score to keep
  int keeps = -1;      ///< scores that this warp keeps; below 0: the threads read the row

  DEV int tokens() const { return p.sizes.tokens; }
  DEV float undivided(int token) const { return Scores::eval(p, row, token).v[0]; }
  DEV float divided(float s) const { return temperature.template of<2, false>(Frag<float, 1>{{s}}).v[0]; }
  DEV float score(int token) const { return divided(undivided(token)); }
  DEV double weight(float s) const { return order_of(s) < least ? 0.0 : static_cast<double>(expf(s - top)); }

  /// This warp's part of the row.
  DEV int part() const { return (tokens() + Team::kWarps - 1) / Team::kWarps; }
  DEV int begin() const { return Team::warp_of_row() * part(); }
  DEV int count() const {
    const int left = tokens() - begin();
    return left < part() ? left : part();
  }
  static constexpr int kAtOnce = 4;
  /// Scores of it that are 32 apart, from score `first` on, once `find_top` has been called. Behind its end: `first`.
  DEV Frag<float, kAtOnce> own_scores(int first) const {
    Frag<float, kAtOnce> s;
    UNROLL for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + 32 * i < count() ? first + 32 * i : first;
      s.v[i] = p.sizes.held ? held[at] : undivided(begin() + at);
    }
    return temperature.template of<2, false>(s);
  }
  /// Calls f(score) for this warp's part of the row.
  template <class F>
  DEV void each_own(const F& f) const {
    for (int first = lane(); first < count(); first += 32 * kAtOnce) {
      const Frag<float, kAtOnce> s = own_scores(first);
      UNROLL for (int i = 0; i < kAtOnce; ++i) if (first + 32 * i < count()) f(s.v[i]);
    }
  }

  /// Reads the row. No branch comes between a thread's loads, which would then wait for each other.
  DEV SampleTop find_top() {
    constexpr int kLoads = 8;
    const int n = count();
    int best = tokens();
    for (int first = lane(); first < n; first += 32 * kLoads) {
      float s[kLoads];
      UNROLL for (int i = 0; i < kLoads; ++i) {
        const int at = first + 32 * i < n ? first + 32 * i : first;
        s[i] = undivided(begin() + at);
      }
      UNROLL for (int i = 0; i < kLoads; ++i) {
        const int at = first + 32 * i;  // behind the part, a score once more
        if (p.sizes.held && at < n) held[at] = s[i];
        best = s[i] > own ? begin() + at : best;
        own = max_or_nan(own, s[i]);
      }
    }
    const auto largest = [](float a, float b) { return max_or_nan(a, b); };
    const auto first = [](int a, int b) { return a < b ? a : b; };
    SampleTop of_warp{Team::of_lanes(own, largest), tokens()};
    of_warp.token = Team::of_lanes(own == of_warp.score ? best : tokens(), first);
    const SampleTop* all = team.of_warps(of_warp);
    SampleTop of_row = all[lane()];
    for (int w = 32 + lane(); w < Team::kWarps; w += 32) {
      if (all[w].score > of_row.score) of_row.token = all[w].token;
      of_row.score = max_or_nan(of_row.score, all[w].score);
    }
    top = Team::of_lanes(of_row.score, largest);
    return {top, Team::of_lanes(of_row.score == top ? of_row.token : tokens(), first)};
  }

  /// Calls f(score) for all kept scores, or for the warp's part of the row.
  template <class F>
  DEV void each(const F& f) const {
    if (keeps >= 0) {
      for (int i = lane(); i < keeps; i += 32) f(kept[i]);
    } else {
      each_own(f);
    }
  }

  /// Keeps the scores with keys from `from` on; each warp those of its part of the row.
  DEV void keep(uint32_t from) {
    const int end = count();
    int n = 0;
    for (int first = lane(); first - lane() < end; first += 32 * kAtOnce) {
      const Frag<float, kAtOnce> s = first < end ? own_scores(first) : Frag<float, kAtOnce>{};
      UNROLL for (int i = 0; i < kAtOnce; ++i) {
        const bool stays = first + 32 * i < end && order_of(s.v[i]) >= from;
        const uint32_t all = ballot(stays);
        const int at = n + count_bits(all & ((1u << lane()) - 1));
        if (stays && at < p.sizes.capacity) kept[at] = s.v[i];
        n += count_bits(all);
      }
    }
    const double most = team.of_threads(static_cast<double>(n), [](double a, double b) { return a > b ? a : b; });
    keeps = most <= p.sizes.capacity ? n : -1;
    sync_warp();
  }

  /// The largest key such that the weights of the scores from it on sum to at least `enough`.
  template <class Weight>
  DEV uint32_t threshold(double enough, const Weight& weight_of) const {
    uint32_t found = 0;
    for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
      double sum = 0;
      each([&](float s) { sum += order_of(s) >= (found | bit) ? weight_of(s) : 0.0; });
      if (team.sum(sum) >= enough) found |= bit;
    }
    return found;
  }
};

/// The inclusive prefix sum of x over the lanes.
DEV double sum_up_to_lane(double x) {
  for (int apart = 1; apart < 32; apart <<= 1) {
    const double other = shuffle_up(x, apart);
    if (lane() >= apart) x += other;
  }
  return x;
}
/// The last lane of `any` up to the first of `passed`, or of all if none has passed; below 0 if there is none.
DEV int last_lane(uint32_t any, uint32_t passed) {
  const uint32_t front = passed ? (passed & (0u - passed)) * 2 - 1 : ~0u;
  return 31 - count_leading_zeros(any & front);
}

/// The warp of a row, given the sums of the warps' parts, in whose part the running sum passes `target`; if rounding
/// leaves the whole below the target, the last warp with a nonzero sum. Every lane adds a few warps' sums, so that all
/// lanes know the result quickly.
struct SamplePart {
  int warp;
  double before;  ///< the sum of the parts before it
};
template <int kWarps>
struct SampleParts {
  static constexpr int kEach = kWarps / 32;
  static_assert(kWarps % 32 == 0);
  double own[kEach], before = 0, whole;

  DEV explicit SampleParts(const double* sums) {
    double sum = 0;
    UNROLL for (int i = 0; i < kEach; ++i) sum += own[i] = sums[lane() * kEach + i];
    sum = sum_up_to_lane(sum);
    whole = shuffle(sum, 31);
    const double others = shuffle_up(sum, 1);
    if (lane() > 0) before = others;
  }
  DEV SamplePart passes(double target) const {
    SamplePart last{-1, 0};
    double below = before;
    bool passed = false;
    UNROLL for (int i = 0; i < kEach; ++i) {
      if (passed) continue;
      if (own[i] > 0) last = {lane() * kEach + i, below};
      below += own[i];
      passed = below > target;
    }
    const int from = last_lane(ballot(last.warp >= 0), ballot(passed));
    if (from < 0) return {0, 0};
    return {shuffle(last.warp, from), shuffle(last.before, from)};
  }
};

/// The position where the running sum of weights passes `share` (0 to 1) of the whole: a part of the row is divided
/// among the warps until each lane has one token.
struct SamplePlace {
  int token;
  double whole;
};
template <class Row>
DEV SamplePlace sample_place(const Row& row, double share) {
  using Team = typename Row::Team;
  SamplePlace out{0, 0};
  double target = 0;
  int begin = 0, end = row.tokens();
  for (bool first = true;; first = false) {
    const int part = (end - begin + Team::kWarps - 1) / Team::kWarps, from = begin + Team::warp_of_row() * part,
              to = from + part < end ? from + part : end;
    double sum = 0;
    if (first) {
      row.each_own([&](float s) { sum += row.weight(s); });
    } else {
      UNROLL_8 for (int t = from + lane(); t < to; t += 32) sum += row.weight(row.score(t));
    }
    const double* sums = row.team.of_warps(Team::of_lanes(sum, [](double a, double b) { return a + b; }));
    const SampleParts<Team::kWarps> parts(sums);
    if (first) {
      out.whole = parts.whole;
      target = share * out.whole;
    }
    const SamplePart chosen = parts.passes(target);
    target -= chosen.before;
    begin += chosen.warp * part;
    end = begin + part < end ? begin + part : end;
    if (part <= 32) break;
  }
  const int t = begin + lane();
  const double own = t < end ? row.weight(row.score(t)) : 0.0;
  const double sum = sum_up_to_lane(own);
  const int last = last_lane(ballot(own > 0), ballot(own > 0 && sum > target));
  if (last >= 0) out.token = begin + last;
  return out;
}

/// The largest key that at least `wanted` threads reach; `own`: the largest score that this thread has seen.
template <class Team>
DEV uint32_t order_of_some(const Team& team, float own, float wanted) {
  uint32_t found = 0;
  for (uint32_t bit = 0x80000000u; bit; bit >>= 1)
    if (team.sum(order_of(own) >= (found | bit) ? 1.0 : 0.0) >= static_cast<double>(wanted)) found |= bit;
  return found;
}

/// Finds the smallest score that top-k and top-p keep.
template <class Row>
DEV void sample_least(Row& row, float top_k, float top_p) {
  const bool some = top_k >= 1 && top_k < static_cast<float>(row.tokens());
  if (!some && !(top_p < 1)) return;
  const auto weight = [&](float s) { return row.weight(s); };
  const auto whole = [&] {
    double sum = 0;
    row.each([&](float s) { sum += row.weight(s); });
    return row.team.sum(sum);
  };
  double sum = some ? 0.0 : whole();
  // Scores below e^-x of the largest, x the logarithm of tokens / (1 - p), sum to less than what top-p drops.
  const float rest = static_cast<float>(row.tokens()) / (1 - top_p);
  row.keep(some ? order_of_some(row.team, row.divided(row.own), top_k) : order_of(row.top - logf(rest) - 1));
  if (some) row.least = row.threshold(static_cast<double>(top_k), [](float) { return 1.0; });
  if (!(top_p < 1)) return;
  if (some) sum = whole();
  const uint32_t likely = row.threshold(static_cast<double>(top_p) * sum, weight);
  if (likely > row.least) row.least = likely;
}

/// Grid: x = rows times kBlocks, which form a cluster. Rule and Seed::eval(p, row, i); Counter::eval(p, 0, row).
template <int kBlocks, class Scores, class Rule, class Seed, class Counter, class Epilogue, class Params>
DEV void sample(const Params& p) {
  using Team = SampleTeam<kBlocks>;
  if constexpr (kBlocks > 1) sync_cluster();  // all blocks have started and can be written to
  griddep_wait();
  griddep_launch();
  double* shared = reinterpret_cast<double*>(shared_memory());
  const Team team{shared};
  float* floats = reinterpret_cast<float*>(shared + 2 * Team::kWarps);
  const int row_number = block_x() / kBlocks, warps = sample_warps(kBlocks);
  SampleRow<Scores, Team, Params> row{p, team, floats + warp() * p.sizes.capacity,
                                      floats + warps * p.sizes.capacity + warp() * p.sizes.held, row_number};
  const auto rule = [&](int i) { return Rule::eval(p, row_number, i).v[0]; };
  const bool draws = rule(0) > 0;
  const SampleTop top = row.find_top();
  double share = 0;
  if (draws) {
    row.temperature = Quotients(rule(0));
    row.top = row.divided(top.score);
    sample_least(row, rule(1), rule(2));
    if (rule(3) > 0) {
      const uint32_t likely = order_of(row.top + logf(rule(3)));
      if (likely > row.least) row.least = likely;
    }
    if (row.least > order_of(row.top)) row.least = order_of(row.top);  // no rule drops the largest
    uint64_t seed = 0;
    for (int i = 3; i >= 0; --i)
      seed = seed << 16 | (static_cast<uint32_t>(static_cast<int32_t>(Seed::eval(p, row_number, i).v[0])) & 0xffffu);
    share = philox_uniform(seed, static_cast<uint64_t>(Counter::eval(p, 0, row_number).v[0]));
  }
  const bool known = top.score > bits_to_float(0xff800000u) && top.score < bits_to_float(0x7f800000u);  // not if NaN
  const SamplePlace place = known ? sample_place(row, share) : SamplePlace{0, 0};
  const int token = !known ? 0 : draws ? place.token : top.token;
  const float log_probability =
      known ? row.score(token) - row.top - logf(static_cast<float>(place.whole)) : bits_to_float(0x7fc00000u);
  if (Team::thread_of_row() != 0) return;
  const float made[2] = {static_cast<float>(token), log_probability};
  for (int col = 0; col < 2; col += Epilogue::kLanes) {
    Frag<float, 1> acc[Epilogue::kLanes];
    for (int l = 0; l < Epilogue::kLanes; ++l) acc[l].v[0] = made[col + l];
    Epilogue::store(p, row_number, col, Epilogue::compute(p, row_number, col, acc));
  }
}

}  // namespace tenon::device
