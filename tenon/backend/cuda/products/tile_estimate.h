// Rough time of a product in tiles: waves of blocks over the multiprocessors, each as long as its K tiles; smaller
// tiles are less efficient, and split-K adds a cost.
#pragma once
#include <cstdint>

#include "tenon/backend/cuda/device.h"

namespace tenon::cuda {

/// A tile and its rate on a multiprocessor, relative to the largest mma tile's.
template <class Tile>
struct RatedTile {
  Tile tile;
  double rate;
};

/// A block's work: results, and K tiles of `row_bytes`, at a rate as in RatedTile.
struct BlockWork {
  int64_t area, k_tiles;
  int row_bytes;
  double rate;
};

/// Time of `blocks` equal blocks in units of a 64 x 64 product over 64 bytes at the best mma rate (an eighth of a
/// microsecond on an H200). Filling the pipeline and the epilogue cost a few K tiles; split-K costs that blocks wait
/// for each other and, in memory instead of `in_cluster`, a pass over the sums per part.
inline double time_of(int64_t blocks, const BlockWork& work, int splits, int multiprocessors, bool in_cluster = false) {
  constexpr double kMeeting = 24;           // two fences and a counter in memory: 3 us
  constexpr double kMeetingInCluster = 22;  // places side by side, and two barriers
  const double pass = splits > 1 && !in_cluster ? 3.0 + splits : 0;
  const double each = static_cast<double>(work.k_tiles) * work.row_bytes / 64 / work.rate + 4 + pass;
  const double meeting = splits == 1 ? 0 : in_cluster ? kMeetingInCluster : kMeeting;
  return static_cast<double>(div_up(blocks, multiprocessors)) * static_cast<double>(work.area) / 4096 * each + meeting;
}

/// Calls `consider` with every split-K worth trying: those that still find idle multiprocessors.
template <class F>
void for_splits(int64_t k_tiles, int64_t tiles, int places, const F& consider) {
  constexpr int kMaxSplits = 16;
  for (int splits = 1; splits <= kMaxSplits; ++splits)
    if (splits == 1 || (splits * 4 <= k_tiles && tiles * splits <= 2 * places)) consider(splits);
}

}  // namespace tenon::cuda
