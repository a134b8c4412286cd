// The rows skeleton: a row lives in the registers of a team, some lanes of a warp or a whole block, through several
// reductions and several sinks: one read and one write of memory.
#pragma once
#include "tenon/device/elements.h"
#include "tenon/device/plain.h"
#include "tenon/device/sizes.h"

namespace tenon::device {

/// Joins partial results of reduction node T.
template <class T>
DEV float combine(float a, float b) {
  if constexpr (requires { T::template combine<float>(a, b); })
    return T::template combine<float>(a, b);
  else
    return T::template step<float>(a, b);
}

template <class T, int lanes = 32>
DEV float combine_lanes(float x) {
  UNROLL for (int mask = lanes / 2; mask > 0; mask >>= 1) x = combine<T>(x, shuffle_xor(x, mask));
  return x;
}

/// Some lanes of a warp side by side: 8, 16 or all 32.
template <int lanes>
struct LanesTeam {
  static constexpr int kThreads = lanes;
  bool present = true;  ///< false: it keeps the other lanes company, and stores no row results
  DEV int rank() const { return lane() % lanes; }
  DEV bool stores() const { return present && rank() == 0; }
  template <class T>
  DEV float reduce(float x) const {
    return combine_lanes<T, lanes>(x);
  }
};
using WarpTeam = LanesTeam<32>;

/// A block. Results of the warps meet in shared memory, in an order that is always the same.
template <int threads>
struct BlockTeam {
  static constexpr int kThreads = threads;
  float* exchange;  // one float a warp
  DEV int rank() const { return thread_index(); }
  DEV bool stores() const { return rank() == 0; }
  template <class T>
  DEV float reduce(float x) const {
    x = combine_lanes<T>(x);
    sync_block();  // the exchange may still be in use
    if (lane() == 0) exchange[warp()] = x;
    sync_block();
    float all = exchange[0];
    UNROLL for (int w = 1; w < threads / 32; ++w) all = combine<T>(all, exchange[w]);
    return all;
  }
};

inline constexpr int kWarpRowThreads = 128;

/// Program: kRun; run<R>(p, row, cols, team) computes and stores a row of up to R * kRun * team threads columns.
template <class Program, class Constants, int R, int lanes, class Params>
DEV void rows_by_lanes(const Params& p) {
  begin_plain<Constants>(p);
  const int first = (block_x() * (kWarpRowThreads / 32) + warp()) * (32 / lanes), row = first + lane() / lanes;
  if (first >= p.sizes.rows) return;
  const LanesTeam<lanes> team{row < p.sizes.rows};
  Program::template run<R>(p, team.present ? row : first, team.present ? p.sizes.cols : 0, team);
}

template <class Program, class Constants, int R, int threads, class Params>
DEV void rows_by_block(const Params& p) {
  begin_plain<Constants>(p);
  const BlockTeam<threads> team{reinterpret_cast<float*>(shared_memory())};
  Program::template run<R>(p, block_x(), p.sizes.cols, team);
}

}  // namespace tenon::device
