// The map skeleton: fragments of the domain, a warp's side by side, so that its loads and stores are whole lines
// wherever the operands' rows are. A thread stays in its column and walks rows, several at once: their loads do not
// wait for each other, and the next ones are on their way while results are computed.
#pragma once
#include "tenon/backend/cuda/device/elements.h"
#include "tenon/backend/cuda/device/plain.h"
#include "tenon/backend/cuda/device/sizes.h"

namespace tenon::device {

/// Nothing in front of a map.
struct NoLets {
  struct First {};
  template <class Params>
  DEV static First first(const Params&) {
    return {};
  }
  template <class Params>
  DEV static void run(const Params&, const First&) {}
};

/// Program: kRun; loads(p, row, col) of kRun columns from `col` on, and results(p, row, col, loads) that computes and
/// stores them. Lets: small values for every block (lets.h); first(p) loads for them. at_once: rows of a thread whose
/// loads are under way together. Where nobody who still runs writes what it loads (MapSizes::settled) it does not wait
/// for the predecessor's end to load the first of them, and walks backwards: what the predecessor read last, sums of
/// the same values, is in the second-level cache.
template <class Program, class Constants, class Lets, int threads, int at_once, class Params>
DEV void map(const Params& p) {
  const MapSizes& s = p.sizes;
  const int i = block_x() * threads + thread_index(), first = i / s.row_fragments,
            col = (i - first * static_cast<int>(s.row_fragments.divisor)) * Program::kRun;
  // A row that is not there is the last: a load behind a branch would wait for the one before it.
  const auto at = [&](int row) {
    const int there = row < s.rows ? row : s.rows - 1;
    return s.settled ? s.rows - 1 - there : there;
  };
  Constants::copy(p);
  if (!s.settled_lets) griddep_wait();
  const typename Lets::First lets = Lets::first(p);
  if (!s.settled) griddep_wait();
  typename Program::Loads loads[at_once];
  UNROLL for (int j = 0; j < at_once; ++j) loads[j] = Program::loads(p, at(first + j * s.lines), col);
  griddep_wait();
  griddep_launch();
  Constants::wait();
  Lets::run(p, lets);
  if (first >= s.lines) return;
  int row = first;
  NO_UNROLL for (; row + at_once * s.lines < s.rows; row += at_once * s.lines) {
    UNROLL for (int j = 0; j < at_once; ++j) {
      Program::results(p, at(row + j * s.lines), col, loads[j]);
      loads[j] = Program::loads(p, at(row + (at_once + j) * s.lines), col);
    }
  }
  UNROLL for (int j = 0; j < at_once; ++j) if (row + j * s.lines < s.rows)
      Program::results(p, at(row + j * s.lines), col, loads[j]);
}

}  // namespace tenon::device
