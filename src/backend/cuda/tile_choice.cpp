#include "tenon/backend/cuda/tile_choice.h"

namespace tenon::cuda {
namespace {

struct Candidate {
  MmaTileShape tile;
  double rate;  // of a multiprocessor at full occupancy, relative to the largest tile
};

// Operands are read once a tile: rates fall with its size. Not measured yet on a device.
constexpr Candidate kCandidates[] = {
    {{128, 128, 2, 4, 64, 4}, 1.0}, {{128, 64, 2, 2, 64, 4}, 0.85}, {{64, 128, 2, 2, 64, 4}, 0.85},
    {{64, 64, 2, 2, 128, 3}, 0.7},  {{32, 64, 1, 4, 128, 4}, 0.5},
};
constexpr int kMostSplits = 16;

int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Time in units of 64 x 64 products of one step of K at the best rate.
double time_of(const Candidate& c, const ProductShape& p, int splits, int multiprocessors) {
  const int64_t tiles = div_up(p.m, c.tile.m) * div_up(p.n / p.lanes, c.tile.n / p.lanes) * p.batch;
  const int64_t steps = div_up(p.k * p.element_bytes, c.tile.row_bytes);
  const double area = static_cast<double>(c.tile.m) * c.tile.n / 4096,
               each = static_cast<double>(div_up(steps, splits));
  // Filling the pipeline and the epilogue cost a few steps; meeting costs a pass over the sums for each part.
  const double block = area * (each * c.tile.row_bytes / 64 / c.rate + 4 + (splits > 1 ? 3.0 + splits : 0));
  return static_cast<double>(div_up(tiles * splits, multiprocessors)) * block;
}

}  // namespace

TileChoice choose_tile(const ProductShape& p, const DeviceFacts& facts) {
  TileChoice best;
  double least = -1;
  for (const Candidate& c : kCandidates) {
    if (c.tile.n / c.tile.warps_n % (8 * p.lanes) || c.tile.shared_bytes() > facts.shared_bytes) continue;
    const int64_t steps = div_up(p.k * p.element_bytes, c.tile.row_bytes);
    for (int splits = 1; splits <= kMostSplits && (splits == 1 || splits * 4 <= steps); ++splits) {
      const double time = time_of(c, p, splits, facts.multiprocessors);
      if (least < 0 || time < least) {
        least = time;
        best = {c.tile, splits};
      }
    }
  }
  return best;
}

}  // namespace tenon::cuda
