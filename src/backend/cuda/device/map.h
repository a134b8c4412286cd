// The map skeleton: fragments of the domain, a warp's side by side, so that its loads and stores are whole lines
// wherever the operands' rows are. A thread stays in its column and walks rows, several at once: their loads do not
// wait for each other.
#pragma once
#include "tenon/device/elements.h"
#include "tenon/device/plain.h"
#include "tenon/device/sizes.h"

namespace tenon::device {

/// Nothing in front of a map.
struct NoLets {
  template <class Params>
  DEV static void run(const Params&) {}
};

/// Program: kRun; loads(p, row, col) of kRun columns from `col` on, and results(p, row, col, loads) that computes and
/// stores them. Lets: small values for every block (lets.h). at_once: rows of a thread whose loads are under way
/// together.
template <class Program, class Constants, class Lets, int threads, int at_once, class Params>
DEV void map(const Params& p) {
  begin_plain<Constants>(p);
  Lets::run(p);
  const MapSizes& s = p.sizes;
  const int i = block_x() * threads + thread_index();
  if (i >= s.lines * static_cast<int>(s.row_fragments.divisor)) return;
  const int first = i / s.row_fragments, col = (i - first * static_cast<int>(s.row_fragments.divisor)) * Program::kRun;
  NO_UNROLL for (int row = first; row < s.rows; row += at_once * s.lines) {
    typename Program::Loads loads[at_once];
    UNROLL for (int j = 0; j < at_once; ++j) {
      const int at = row + j * s.lines;
      loads[j] = Program::loads(p, at < s.rows ? at : row, col);
    }
    UNROLL for (int j = 0; j < at_once; ++j) if (row + j * s.lines < s.rows)
        Program::results(p, row + j * s.lines, col, loads[j]);
  }
}

}  // namespace tenon::device
