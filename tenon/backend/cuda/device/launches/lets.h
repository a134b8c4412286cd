// Several small programs run one after another in one block: what a launch computes before its own kernel (group
// statistics turned into scale and shift). Each reads what earlier ones wrote, separated by sync_block(). They form a
// kernel of one block, or the start of every block of a map, which then reads them from shared memory. With a grid of
// several parts (y), a block computes the rows of its part: `rows` of each let.
#pragma once
#include "tenon/backend/cuda/device/launches/rows.h"

namespace tenon::device {

inline constexpr int kLetsThreads = 1024;

/// Loads for a thread's first fragment in let_map; clamped to the last fragment.
template <class Program, class Params>
DEV typename Program::Loads let_loads(const Params& p, int rows, const Divisor& row_fragments) {
  const int width = static_cast<int>(row_fragments.divisor), last = rows * width - 1,
            i = thread_index() < last ? thread_index() : last, row = i / row_fragments;
  return Program::loads(p, block_y() * rows + row, (i - row * width) * Program::kWidth);
}

/// A program without reductions over rows * row_fragments fragments. `first`: from let_loads.
template <class Program, int threads, class Params>
DEV void let_map(const Params& p, int rows, const Divisor& row_fragments, const typename Program::Loads& first) {
  const int width = static_cast<int>(row_fragments.divisor);
  typename Program::Loads loads = first;
  NO_UNROLL for (int i = thread_index(); i < rows * width; i += threads) {
    const int row = i / row_fragments, there = block_y() * rows + row, col = (i - row * width) * Program::kWidth;
    if (i != thread_index()) loads = Program::loads(p, there, col);
    Program::results(p, there, col, loads);
  }
}

/// A program that reduces rows, with `lanes` lanes of a warp per row; with fewer than 32 it stores one value per row.
template <class Program, int R, int lanes, int threads, class Params>
DEV void let_rows(const Params& p, int rows, int cols) {
  NO_UNROLL for (int first = warp() * (32 / lanes); first < rows; first += threads / lanes) {
    const LanesTeam<lanes> team{first + lane() / lanes < rows};
    const int row = block_y() * rows + first + (team.present ? lane() / lanes : 0), present = team.present ? cols : 0;
    typename Program::template Loads<R> loads;
    Program::template loads<R>(p, row, present, team, loads);
    Program::template run<R>(p, row, present, team, loads);
  }
}

}  // namespace tenon::device
