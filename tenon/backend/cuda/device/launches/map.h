// The map skeleton. A warp's fragments are contiguous, so that loads and stores are full cache lines wherever operand
// rows are. A thread stays in its columns and goes through rows, several at once: their loads are independent, and the
// next ones are in flight while results are computed.
#pragma once
#include "tenon/backend/cuda/device/elements.h"
#include "tenon/backend/cuda/device/launches/plain.h"
#include "tenon/backend/cuda/device/launches/sizes.h"

namespace tenon::device {

/// No lets before a map.
struct NoLets {
  struct First {};
  template <class Params>
  DEV static First first(const Params&) {
    return {};
  }
  template <class Params>
  DEV static void run(const Params&, const First&) {}
};

/// Program: kWidth; loads(p, row, col) loads for kWidth columns from `col` on, and results(p, row, col, loads) computes
/// and stores them. Lets: small values computed by every block (lets.h), whose first loads first(p) issues. at_once:
/// rows per thread whose loads are in flight together. If no running kernel writes what the map loads
/// (MapSizes::settled), it issues its first loads before the predecessor has ended, and processes rows backwards: what
/// the predecessor read last, for sums of the same values, is still in L2. Grid: y = parts of the rows, which need only
/// their own lets.
template <class Program, class Constants, class Lets, int threads, int at_once, class Params>
DEV void map(const Params& p) {
  const MapSizes& s = p.sizes;
  const int i = block_x() * threads + thread_index(), first = i / s.row_fragments,
            col = (i - first * static_cast<int>(s.row_fragments.divisor)) * Program::kWidth, part = block_y() * s.rows;
  // A missing row is replaced by the last one: a load behind a branch would wait for the previous load.
  const auto at = [&](int row) {
    const int there = row < s.rows ? row : s.rows - 1;
    return part + (s.settled ? s.rows - 1 - there : there);
  };
  typename Program::Loads loads[at_once];
  const auto load = [&] {
    UNROLL for (int j = 0; j < at_once; ++j) loads[j] = Program::loads(p, at(first + j * s.lines), col);
  };
  Constants::copy(p);
  typename Lets::First lets = {};
  if (s.settled_lets) lets = Lets::first(p);
  if (s.settled) load();
  Constants::wait();
  griddep_wait();
  griddep_launch();
  if (!s.settled) load();
  if (!s.settled_lets) lets = Lets::first(p);
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
