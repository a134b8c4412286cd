// Several small programs one after the other in one block: what a launch computes before its own kernel (group
// statistics turned into scale and shift). Each reads what the ones before it wrote.
#pragma once
#include "tenon/device/rows.h"

namespace tenon::device {

inline constexpr int kLetsThreads = 1024;

/// A program without reductions over rows * row_fragments fragments.
template <class Program, class Params>
DEV void let_map(const Params& p, int rows, const Divisor& row_fragments) {
  const int width = static_cast<int>(row_fragments.divisor);
  for (int i = thread_index(); i < rows * width; i += kLetsThreads) {
    const int row = i / row_fragments;
    Program::eval(p, row, (i - row * width) * Program::kRun);
  }
  sync_block();
}

/// A program that reduces rows, a warp a row.
template <class Program, int R, class Params>
DEV void let_rows(const Params& p, int rows, int cols) {
  for (int row = warp(); row < rows; row += kLetsThreads / 32) Program::template run<R>(p, row, cols, WarpTeam{});
  sync_block();
}

}  // namespace tenon::device
