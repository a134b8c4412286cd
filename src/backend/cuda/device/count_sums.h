// Adds the partial sums that a core's tiles left (mma_counts.h), in a fixed order: 32 lines of threads take every 32nd
// slot, then the lines are added.
#pragma once
#include "tenon/device/mma_counts.h"

namespace tenon::device {

inline constexpr int kCountThreads = 1024;

/// sums, squares: [samples][columns] floats, or null. Grid: x = columns / 32, y = 2 * samples (sums, then squares of
/// each).
template <class Params>
DEV void count_sums(const Params& p, float* sums, float* squares) {
  griddep_wait();
  griddep_launch();
  constexpr int kLines = kCountThreads / 32, kAtOnce = 4;
  const CountSumsSizes& s = p.sizes;
  const int column = block_x() * 32 + lane(), line = warp(), sample = block_y() / 2;
  const int slots = s.tile_rows == 0 ? s.slots : RowSamples{s.inner, 0, s.tile_rows, 0}.slots(sample);
  if (slots == 1) return;  // stored whole
  float* out = block_y() % 2 ? squares : sums;
  const float* from = s.partials + static_cast<int64_t>(block_y()) * s.slots * s.columns + column;
  float total = 0;
  if (column < s.columns) {
    NO_UNROLL for (int first = line; first < slots; first += kLines * kAtOnce) {
      float x[kAtOnce];  // loads that do not wait for each other
      UNROLL for (int j = 0; j < kAtOnce; ++j) {
        const int slot = first + j * kLines;
        x[j] = slot < slots ? from[static_cast<int64_t>(slot) * s.columns] : 0.0f;
      }
      UNROLL for (int j = 0; j < kAtOnce; ++j) total += x[j];
    }
  }
  float* lines = reinterpret_cast<float*>(shared_memory());  // [kLines][32]
  lines[line * 32 + lane()] = total;
  sync_block();
  if (line > 0 || column >= s.columns || !out) return;
  total = 0;
  UNROLL for (int l = 0; l < kLines; ++l) total += lines[l * 32 + lane()];
  out[static_cast<int64_t>(sample) * s.columns + column] = total;
}

}  // namespace tenon::device
