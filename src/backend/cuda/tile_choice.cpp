#include "tenon/backend/cuda/tile_choice.h"

#include "tenon/core/error.h"
#include "tenon/core/options.h"

namespace tenon::cuda {
namespace {

template <class Tile>
struct Candidate {
  Tile tile;
  double rate;  // of a multiprocessor, relative to the largest mma tile's
};

// Operands are read once a tile: rates fall with its size. Not measured yet on a device.
constexpr Candidate<MmaTileShape> kMma[] = {
    {{128, 128, 2, 4, 64, 4}, 1.0}, {{128, 64, 2, 2, 64, 4}, 0.85}, {{64, 128, 2, 2, 64, 4}, 0.85},
    {{64, 64, 2, 2, 128, 4}, 0.7},  {{32, 64, 1, 4, 128, 4}, 0.5},
};
constexpr Candidate<WgmmaTileShape> kWgmma[] = {
    {{128, 256, 3}, 1.7}, {{128, 128, 5}, 1.5}, {{128, 64, 6}, 1.1}, {{64, 128, 5}, 1.0}, {{64, 64, 6}, 0.8},
};
constexpr int kMostSplits = 16;

// Time of `blocks` equal blocks of `area` results and `steps` steps of `row_bytes` of K, in units of a 64 x 64 product
// over 64 bytes at the best mma rate. Filling the pipeline and the epilogue cost a few steps; meeting costs a pass over
// the sums for each part.
double time_of(int64_t blocks, int64_t area, int64_t steps, int row_bytes, double rate, int splits,
               int multiprocessors) {
  const double each = static_cast<double>(steps) * row_bytes / 64 / rate + 4 + (splits > 1 ? 3.0 + splits : 0);
  return static_cast<double>(div_up(blocks, multiprocessors)) * static_cast<double>(area) / 4096 * each;
}

// Calls `consider` with every number of parts worth a try.
template <class F>
void for_splits(int64_t steps, const F& consider) {
  for (int splits = 1; splits <= kMostSplits && (splits == 1 || splits * 4 <= steps); ++splits) consider(splits);
}

}  // namespace

TileChoice choose_mma(const ProductShape& p, const DeviceFacts& facts) {
  TileChoice best;
  bool found = false;
  for (const auto& [tile, rate] : kMma) {
    if (tile.n / tile.warps_n % (8 * p.lanes) || tile.shared_bytes() > facts.shared_bytes) continue;
    const int64_t tiles = div_up(p.m, tile.m) * div_up(p.n / p.lanes, tile.n / p.lanes) * p.batch;
    const int64_t steps = div_up(p.k * p.element_bytes, tile.row_bytes);
    for_splits(steps, [&, &tile = tile, &rate = rate](int splits) {
      const double time = time_of(tiles * splits, int64_t{tile.m} * tile.n, div_up(steps, splits), tile.row_bytes, rate,
                                  splits, facts.multiprocessors);
      if (found && time >= best.time) return;
      found = true;
      best = {Core::Mma, tile, {}, splits, time};
    });
  }
  return best;
}

TileChoice choose_wgmma(const ProductShape& p, const DeviceFacts& facts,
                        const std::function<int64_t(const WgmmaTileShape&)>& tiles_m) {
  TileChoice best;
  bool found = false;
  best.core = Core::Simt;
  for (const auto& [tile, rate] : kWgmma) {
    const int slab = tile.n < 256 ? 64 : 32;
    if (tile.n % (8 * p.lanes) || slab % (8 * p.lanes) || tile.shared_bytes() > facts.shared_bytes) continue;
    const int64_t tiles = tiles_m(tile) * div_up(p.n / p.lanes, tile.n / p.lanes) * p.batch;
    const int64_t steps = div_up(p.k * p.element_bytes, 128);
    for_splits(steps, [&, &tile = tile, &rate = rate](int splits) {
      const double time = time_of(tiles * splits, int64_t{tile.m} * tile.n, div_up(steps, splits), 128, rate, splits,
                                  facts.multiprocessors);
      if (found && time >= best.time) return;
      found = true;
      best = {Core::Wgmma, {}, tile, splits, time};
    });
  }
  return best;
}

bool core_allowed(Core core) {
  const std::string only = option(Option::CudaCore);
  if (only.empty()) return true;
  const std::string names[] = {"simt", "mma", "wgmma"};
  TENON_CHECK(Usage, only == names[0] || only == names[1] || only == names[2], "TENON_CUDA_CORE")
      << "expected simt, mma or wgmma, got \"" << only << "\"";
  return only == names[static_cast<int>(core)];
}

}  // namespace tenon::cuda
