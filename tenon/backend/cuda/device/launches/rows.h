// The rows skeleton: a team, some lanes of a warp or a whole block, holds a row in registers through several reductions
// and outputs: one read and one write of memory.
#pragma once
#include "tenon/backend/cuda/device/elements.h"
#include "tenon/backend/cuda/device/launches/plain.h"
#include "tenon/backend/cuda/device/launches/sizes.h"

namespace tenon::device {

/// Adds one element to the partial result of reduction node T.
template <class T>
DEV float step(float sum, float x) {
  if constexpr (requires { T::largest_magnitude; })
    return max_or_nan(sum, magnitude(x));
  else
    return T::template step<float>(sum, x);
}

/// Combines partial results of reduction node T.
template <class T>
DEV float combine(float a, float b) {
  if constexpr (requires { T::largest_magnitude; })
    return max_or_nan(a, b);
  else if constexpr (requires { T::template combine<float>(a, b); })
    return T::template combine<float>(a, b);
  else
    return T::template step<float>(a, b);
}

template <class T, int lanes = 32>
DEV float combine_lanes(float x) {
  UNROLL for (int mask = lanes / 2; mask > 0; mask >>= 1) x = combine<T>(x, shuffle_xor(x, mask));
  return x;
}

inline constexpr int kWarpRowThreads = 128;

/// Adjacent lanes of a warp: 8, 16 or all 32.
template <int lanes>
struct LanesTeam {
  static constexpr int kThreads = lanes, kOwners = kWarpRowThreads, kTeams = 1;
  bool present = true;  ///< false: takes part only so that the warp stays converged; stores no row results
  DEV int rank() const { return lane() % lanes; }
  DEV bool stores() const { return present && rank() == 0; }
  DEV static int number() { return 0; }
  DEV static int owner() { return thread_index(); }
  /// Reduces every x[i] over the team with the i-th node.
  template <class... Ts>
  DEV void reduce(float (&x)[sizeof...(Ts)]) const {
    int i = 0;
    ((x[i] = combine_lanes<Ts, lanes>(x[i]), ++i), ...);
  }
};
using WarpTeam = LanesTeam<32>;

/// Combines n values pairwise.
template <class T, int n>
DEV float combine_all(float (&x)[n]) {
  UNROLL for (int stride = 1; stride < n; stride *= 2) UNROLL for (int i = 0; i + stride < n; i += 2 * stride) x[i] =
      combine<T>(x[i], x[i + stride]);
  return x[0];
}

/// One of the `teams` equal parts of a block. Its warps exchange their results of up to `kAtOnce` reductions through
/// shared memory, and every thread combines them, always in the same order.
template <int threads, int teams, int kAtOnce>
struct BlockTeam {
  static constexpr int kThreads = threads, kTeams = teams, kOwners = threads, kWarps = threads / 32;
  static constexpr int kPlaces = row_places(threads);
  float* exchange;       // row_exchange_bytes
  mutable int turn = 0;  // double buffer: other warps may still read the previous reductions' places
  DEV static int number() { return teams == 1 ? 0 : thread_index() / threads; }
  DEV static int owner() { return thread_index() - number() * threads; }
  DEV int rank() const { return owner(); }
  DEV bool stores() const { return rank() == 0; }
  template <class... Ts>
  DEV void reduce(float (&x)[sizeof...(Ts)]) const {
    static_assert(sizeof...(Ts) <= kAtOnce);
    float* const places = exchange + turn;
    turn = kAtOnce * kPlaces - turn;
    int i = 0;
    ((x[i] = combine_lanes<Ts>(x[i]), ++i), ...);
    if (lane() == 0)
      UNROLL for (int r = 0; r < static_cast<int>(sizeof...(Ts)); ++r) places[r * kPlaces + rank() / 32] = x[r];
    if constexpr (teams == 1)
      sync_block();
    else
      sync_named(1 + number(), threads);
    i = 0;
    ((x[i] = of_warps<Ts>(places + i * kPlaces), ++i), ...);
  }

 private:
  template <class T>
  DEV static float of_warps(const float* places) {
    float all[kWarps];
    UNROLL for (int w = 0; w < kWarps; w += 4) {
      const Frag<float, 4> four = load<float, 4>(places + w);
      UNROLL for (int i = 0; i < 4 && w + i < kWarps; ++i) all[w + i] = four.v[i];
    }
    return combine_all<T>(all);
  }
};

/// f32 operands that all rows read, kept in shared memory, a separate part for each of the threads that own one:
/// fragment f of R of operand `number`. 16-byte chunks of all owners are contiguous, so there are no bank conflicts.
template <class Team, int R, int N>
    DEV Frag < float,
    N<4 ? N : 4>*column_chunk(int at, int number, int f, int i) {
  constexpr int kChunk = N < 4 ? N : 4;
  return in_shared<Frag<float, kChunk>>(at) + ((number * R + f) * (N / kChunk) + i) * Team::kOwners + Team::owner();
}
template <class Team, int R, int N>
DEV void put_column(int at, int number, int f, const Frag<float, N>& x) {
  constexpr int kChunk = N < 4 ? N : 4;
  UNROLL for (int i = 0; i < N / kChunk; ++i) UNROLL for (int k = 0; k < kChunk; ++k)
      column_chunk<Team, R, N>(at, number, f, i)
          ->v[k] = x.v[kChunk * i + k];
}
template <class Team, int R, int N>
DEV Frag<float, N> column(int at, int number, int f) {
  constexpr int kChunk = N < 4 ? N : 4;
  Frag<float, N> x;
  UNROLL for (int i = 0; i < N / kChunk; ++i) {
    const Frag<float, kChunk> chunk = *column_chunk<Team, R, N>(at, number, f, i);
    UNROLL for (int k = 0; k < kChunk; ++k) x.v[kChunk * i + k] = chunk.v[k];
  }
  return x;
}

/// The address of 16 bytes that are not loaded yet.
template <class T, int N>
struct Later {
  const T* from;
};
template <class T, int N>
DEV Later<T, N> later(const T* from) {
  return {from};
}
/// Fragments of a tensor on their way to shared memory. Each thread copies its own, so that none waits for another.
/// They start after kBehind others of each of `threads`, counted from byte `first`.
template <class T, int N, int threads, int kBehind>
struct Waiting {
  int first;
  struct Place {
    T* at;
    DEV void operator=(Later<T, N> x) const { cp_async16(shared_address(at), x.from, 16); }
    DEV void operator=(const Frag<T, N>& x) const { device::store(at, x); }
  };
  DEV T* place(int f) const { return in_shared<T>(first + ((kBehind + f) * threads + thread_index()) * 16); }
  DEV Place operator[](int f) { return {place(f)}; }
  DEV Frag<T, N> operator[](int f) const { return load<T, N>(place(f)); }
};

template <class Program, int R, class Params, class Team>
DEV void columns_of_block(const Params& p, const Team& team) {
  if constexpr (requires { Program::template columns<R>(p, 0, team); })
    Program::template columns<R>(p, p.sizes.cols, team);
}

/// Program: kWidth; Loads<R>; loads<R>(p, row, cols, team, l) loads a row of up to R * kWidth * team threads columns,
/// and run<R>(..) computes and stores it.
template <class Program_, int R, class Params>
struct RowsOfBlocks {
  using Program = Program_;
  using Loads = typename Program::template Loads<R>;
  const Params& p;
  DEV void columns(const auto& team) const { columns_of_block<Program, R>(p, team); }
  DEV void loads(int row, const auto& team, Loads& l) const {
    Program::template loads<R>(p, row, p.sizes.cols, team, l);
  }
  DEV void run(int row, const auto& team, const Loads& l) const {
    Program::template run<R>(p, row, p.sizes.cols, team, l);
  }
};
/// The same for some lanes of a warp, whose first lanes hold row `first`.
template <class Program_, int R, int lanes, class Params>
struct RowsOfLanes {
  using Program = Program_;
  using Loads = typename Program::template Loads<R>;
  const Params& p;
  DEV void columns(const auto& team) const { columns_of_block<Program, R>(p, team); }
  DEV bool there(int first) const { return first + lane() / lanes < p.sizes.rows; }
  DEV int row(int first) const { return there(first) ? first + lane() / lanes : first; }
  DEV int cols(int first) const { return there(first) ? p.sizes.cols : 0; }
  DEV void loads(int first, LanesTeam<lanes>, Loads& l) const {
    Program::template loads<R>(p, row(first), cols(first), LanesTeam<lanes>{there(first)}, l);
  }
  DEV void run(int first, LanesTeam<lanes>, const Loads& l) const {
    Program::template run<R>(p, row(first), cols(first), LanesTeam<lanes>{there(first)}, l);
  }
};

/// Processes every `stride`-th row from `row` on. Its operands come to one of two buffers in shared memory, of `kBytes`
/// for all teams, while the row before is computed; or to a single buffer once that is done, for other teams to compute
/// meanwhile.
template <class Constants, int kBytes, int kBuffers, class Rows, class Team>
DEV void walk_rows_ahead(const Rows& rows, const Team& team, int row, int stride) {
  const int end = rows.p.sizes.rows, places = Rows::Program::rows(rows.p);
  const auto bring = [&](int number, int place) {
    typename Rows::Loads loads{place};
    if (number < end) rows.loads(number, team, loads);
    cp_async_commit();
  };
  int place = places;
  bring(row, place);
  if (Team::number() == 0) rows.columns(team);
  Constants::wait();
  if constexpr (Team::kTeams > 1) sync_block();  // all teams read the columns
  NO_UNROLL for (; row < end; row += stride) {
    const int next = kBuffers == 1 ? place : 2 * places + kBytes - place;
    if constexpr (kBuffers == 2) bring(row + stride, next);
    cp_async_wait<kBuffers - 1>();
    rows.run(row, team, typename Rows::Loads{place});
    if constexpr (kBuffers == 1) bring(row + stride, next);
    place = next;
  }
}

/// The same in registers if kBuffers is 0: a row is loaded when the previous one is done. Weights are waited for
/// after the first row's loads.
template <class Constants, int kBytes, int kBuffers, class Rows, class Team>
DEV void walk_rows(const Rows& rows, const Team& team, int row, int stride) {
  if constexpr (kBuffers > 0) {
    walk_rows_ahead<Constants, kBytes, kBuffers>(rows, team, row, stride);
  } else {
    const int end = rows.p.sizes.rows;
    typename Rows::Loads loads;
    if (row < end) rows.loads(row, team, loads);
    rows.columns(team);
    Constants::wait();
    NO_UNROLL for (; row < end; row += stride) {
      rows.run(row, team, loads);
      if (row + stride < end) rows.loads(row + stride, team, loads);
    }
  }
}

template <class Program, class Constants, int R, int lanes, int kBytes, int kBuffers, class Params>
DEV void rows_by_lanes(const Params& p) {
  begin_loads<Constants>(p);
  constexpr int kRows = kWarpRowThreads / lanes;  // per block
  walk_rows<Constants, kBytes, kBuffers>(RowsOfLanes<Program, R, lanes, Params>{p}, LanesTeam<lanes>{},
                                         block_x() * kRows + warp() * (32 / lanes), grid_x() * kRows);
}

template <class Program, class Constants, int R, int threads, int teams, int kBytes, int kBuffers, class Params>
DEV void rows_by_block(const Params& p) {
  begin_loads<Constants>(p);
  using Team = BlockTeam<threads, teams, Program::kAtOnce>;
  const int number = Team::number();
  float* const exchange =
      reinterpret_cast<float*>(shared_memory()) + number * (row_exchange_bytes(threads, Program::kAtOnce) / 4);
  walk_rows<Constants, kBytes, kBuffers>(RowsOfBlocks<Program, R, Params>{p}, Team{exchange},
                                         block_x() * teams + number, grid_x() * teams);
}

}  // namespace tenon::device
