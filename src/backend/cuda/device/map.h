// The map skeleton: one fragment of the domain a thread. A warp takes 32 fragments side by side, so that its loads and
// stores are whole lines wherever the operands' rows are.
#pragma once
#include "tenon/device/elements.h"
#include "tenon/device/sizes.h"

namespace tenon::device {

inline constexpr int kMapThreads = 256;

/// Program: kRun; eval(p, row, col) computes and stores kRun columns from `col` on.
template <class Program, class Params>
DEV void map(const Params& p) {
  griddep_wait();
  griddep_launch();
  const int i = block_x() * kMapThreads + thread_index();
  if (i >= p.sizes.fragments) return;
  const int row = i / p.sizes.row_fragments;
  const int col = (i - row * static_cast<int>(p.sizes.row_fragments.divisor)) * Program::kRun;
  Program::eval(p, row, col);
}

}  // namespace tenon::device
