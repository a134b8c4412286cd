// Combines the partial moments stored by a core's tiles (mma_counts.h) in a fixed order: each of 32 lines of threads
// takes every 32nd slot, then the lines are combined.
#pragma once
#include "tenon/backend/cuda/device/mma_counts.h"

namespace tenon::device {

inline constexpr int kCountThreads = 1024;

/// Statistics::store(p, sample * columns + column, moments). Grid: x = columns / 32, y = samples.
template <class Statistics, class Params>
DEV void count_sums(const Params& p) {
  griddep_wait();
  griddep_launch();
  constexpr int kLines = kCountThreads / 32, kAtOnce = 4;
  const CountSumsSizes& s = p.sizes;
  const int column = block_x() * 32 + lane(), line = warp(), sample = block_y();
  const int slots = s.tile_rows == 0 ? s.slots : RowSamples{s.inner, 0, s.tile_rows, 0}.slots(sample);
  if (slots == 1) return;  // already stored by the core
  const float* rows = s.rows + sample * s.slots;
  const float* means = s.partials + static_cast<int64_t>(sample) * 2 * s.slots * s.columns + column;
  const float* m2 = means + static_cast<int64_t>(s.slots) * s.columns;
  MomentSums sums;
  if (column < s.columns) {
    NO_UNROLL for (int first = line; first < slots; first += kLines * kAtOnce) {
      Moments x[kAtOnce];  // independent loads
      UNROLL for (int j = 0; j < kAtOnce; ++j) {
        const int slot = first + j * kLines;
        const int64_t at = static_cast<int64_t>(slot) * s.columns;
        x[j] = slot < slots ? Moments{rows[slot], means[at], m2[at]} : Moments{};
      }
      UNROLL for (int j = 0; j < kAtOnce; ++j) sums.add(x[j]);
    }
  }
  float* lines = reinterpret_cast<float*>(shared_memory());  // [3][kLines][32]
  const Moments own = sums.total();
  lines[line * 32 + lane()] = own.count;
  lines[(kLines + line) * 32 + lane()] = own.mean;
  lines[(2 * kLines + line) * 32 + lane()] = own.m2;
  sync_block();
  if (line > 0 || column >= s.columns) return;
  sums = {};
  UNROLL_8 for (int l = 0; l < kLines; ++l)
      sums.add({lines[l * 32 + lane()], lines[(kLines + l) * 32 + lane()], lines[(2 * kLines + l) * 32 + lane()]});
  Statistics::store(p, static_cast<int64_t>(sample) * s.columns + column, sums.total());
}

}  // namespace tenon::device
