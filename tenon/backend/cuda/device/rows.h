// The rows skeleton: a row lives in the registers of a team, some lanes of a warp or a whole block, through several
// reductions and several sinks: one read and one write of memory.
#pragma once
#include "tenon/backend/cuda/device/elements.h"
#include "tenon/backend/cuda/device/plain.h"
#include "tenon/backend/cuda/device/sizes.h"

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
  static constexpr int kThreads = threads, kWarps = threads / 32;
  float* exchange;       // two floats a warp
  mutable int turn = 0;  // the place of the reduction before may still be read
  DEV int rank() const { return thread_index(); }
  DEV bool stores() const { return rank() == 0; }
  template <class T>
  DEV float reduce(float x) const {
    x = combine_lanes<T>(x);
    float* place = exchange + turn;
    turn ^= kWarps;
    if (lane() == 0) place[warp()] = x;
    sync_block();
    float all = place[0];
    UNROLL for (int w = 1; w < kWarps; ++w) all = combine<T>(all, place[w]);
    return all;
  }
};

/// What a program calls behind the first loads of each row: the weights are waited for behind those of the first.
template <class Constants>
struct FirstLoads {
  mutable bool waiting = true;
  DEV void operator()() const {
    if (waiting) Constants::wait();
    waiting = false;
  }
};

inline constexpr int kWarpRowThreads = 128;

/// Program: kRun; run<R>(p, row, cols, team, ready) computes and stores a row of up to R * kRun * team threads columns;
/// it calls ready() behind its first loads. A block goes on to the rows that are a grid further.
template <class Program, class Constants, int R, int lanes, class Params>
DEV void rows_by_lanes(const Params& p) {
  begin_loads<Constants>(p);
  constexpr int kRows = kWarpRowThreads / lanes;  // of a block
  int first = block_x() * kRows + warp() * (32 / lanes);
  const FirstLoads<Constants> ready;
  if (first >= p.sizes.rows) return ready();
  NO_UNROLL for (; first < p.sizes.rows; first += grid_x() * kRows) {
    const int row = first + lane() / lanes;
    const LanesTeam<lanes> team{row < p.sizes.rows};
    Program::template run<R>(p, team.present ? row : first, team.present ? p.sizes.cols : 0, team, ready);
  }
}

template <class Program, class Constants, int R, int threads, class Params>
DEV void rows_by_block(const Params& p) {
  begin_loads<Constants>(p);
  const BlockTeam<threads> team{reinterpret_cast<float*>(shared_memory())};
  const FirstLoads<Constants> ready;
  NO_UNROLL for (int row = block_x(); row < p.sizes.rows; row += grid_x())
      Program::template run<R>(p, row, p.sizes.cols, team, ready);
}

}  // namespace tenon::device
