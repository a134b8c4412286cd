// Combines the partial moments stored by a core's tiles (mma_counts.h) in a fixed order: each of kLines warps takes
// every kLines-th slot, then the warps' moments are combined.
#pragma once
#include "tenon/backend/cuda/device/products/mma_counts.h"

namespace tenon::device {

/// Statistics::store(p, sample * columns + column, moments). Grid: x = columns / 32, y = samples; 32 * kLines threads.
template <class Statistics, int kLines, class Params>
DEV void count_sums(const Params& p) {
  griddep_wait();
  griddep_launch();
  constexpr int kAtOnce = 4;
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
  const Moments own = sums.total();
  if constexpr (kLines == 1) {
    if (column < s.columns) Statistics::store(p, static_cast<int64_t>(sample) * s.columns + column, own);
    return;
  }
  float* lines = reinterpret_cast<float*>(shared_memory());  // [3][kLines][32]
  lines[line * 32 + lane()] = own.count;
  lines[(kLines + line) * 32 + lane()] = own.mean;
  lines[(2 * kLines + line) * 32 + lane()] = own.m2;
  sync_block();
  if (line > 0 || column >= s.columns) return;
  sums = {};
  UNROLL_8 for (int l = 0; l < kLines; ++l) {
    const float* at = lines + l * 32 + lane();
    sums.add({at[0], at[kLines * 32], at[2 * kLines * 32]});
  }
  Statistics::store(p, static_cast<int64_t>(sample) * s.columns + column, sums.total());
}

}  // namespace tenon::device
