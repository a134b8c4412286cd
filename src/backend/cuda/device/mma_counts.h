// Sums and sums of squares of what an epilogue stores, for each column over the rows of a sample, while it is stored:
//
//   a warp's rows --shuffles, a lane a column--> registers --slabs--> the tile's rows of each sample --> partial sums
//
// The partial sums of a sample's tiles are added by a kernel of their own (count_sums.h): counters in memory and the
// fences before them would keep every tile waiting. The order of all additions is fixed, so that the result is the same
// on every run. An epilogue that counts has kCounts = true, a member `counted` of what it computed, and sums(p) and
// squares(p): [samples][columns] floats, or null. The rows of a warp lie in one sample.
#pragma once
#include "tenon/device/core_sizes.h"
#include "tenon/device/elements.h"

namespace tenon::device {

template <class Epilogue>
concept Counting = requires {
  requires Epilogue::kCounts;
};

/// A warp's sums over its rows, a few columns a lane; nothing where the epilogue does not count.
template <class Tile, class Epilogue>
struct WarpCounts {};

/// Of results in runs: lane 4h + q ends up with column 8q + h of every 32.
template <class Tile, Counting Epilogue>
struct WarpCounts<Tile, Epilogue> {
  static constexpr int kLane = Tile::kWarpN / Epilogue::kLanes, kBlocks = kLane / 32;
  static_assert(2 * kLane * 4 <= Tile::kSlabBytes, "a warp's sums fit its slab");
  float sums[kBlocks] = {}, squares[kBlocks] = {};
  float run_sums[8] = {}, run_squares[8] = {};  ///< of this lane's 8 columns of a block, over its two rows

  /// Adds columns `first` on of this lane's run.
  template <int kRun>
  DEV void add(int first, const Frag<float, kRun>& x) {
    UNROLL for (int e = 0; e < kRun; ++e) {
      run_sums[first + e] += x.v[e];
      run_squares[first + e] += x.v[e] * x.v[e];
    }
  }
  /// Adds the block's runs of 8 lanes: each step halves the columns that a lane is left with.
  DEV void end_block(int block) {
    UNROLL for (int width = 4; width > 0; width /= 2) {
      const bool upper = lane() & (4 * width);
      UNROLL for (int c = 0; c < width; ++c) {
        const float sum = shuffle_xor(upper ? run_sums[c] : run_sums[c + width], 4 * width);
        const float square = shuffle_xor(upper ? run_squares[c] : run_squares[c + width], 4 * width);
        run_sums[c] = (upper ? run_sums[c + width] : run_sums[c]) + sum;
        run_squares[c] = (upper ? run_squares[c + width] : run_squares[c]) + square;
      }
    }
    sums[block] += run_sums[0];
    squares[block] += run_squares[0];
    UNROLL for (int c = 0; c < 8; ++c) run_sums[c] = 0, run_squares[c] = 0;
  }
  /// Writes [2][columns of the warp].
  DEV void put(float* slab) const {
    UNROLL for (int block = 0; block < kBlocks; ++block) {
      const int column = block * 32 + lane() % 4 * 8 + lane() / 4;
      slab[column] = sums[block];
      slab[kLane + column] = squares[block];
    }
  }
};

/// Samples of tiles whose rows are in plain order: tile `tile` has rows from tile * tile_rows on, `rows` in all.
struct RowSamples {
  int inner, tile, tile_rows, rows;
  /// The sample of the tile's row i, below zero outside.
  DEV int sample(int i) const {
    const int row = tile * tile_rows + i;
    return row < rows ? row / inner : -1;
  }
  /// Tiles that have rows of a sample, and the number of this one among them.
  DEV int slots(int sample) const { return ((sample + 1) * inner - 1) / tile_rows - first(sample) + 1; }
  DEV int slot(int sample) const { return tile - first(sample); }
  DEV int first(int sample) const { return sample * inner / tile_rows; }
};

/// Samples of tiles that are boxes of pixels: `layers` images of `pixels` each from image `image` of `images` on, box
/// `box` of the `boxes` that an image is cut into.
struct BoxSamples {
  int pixels, layers, image, images, box, boxes;
  DEV int sample(int i) const {
    const int layer = i / pixels;
    return layer < layers && image + layer < images ? image + layer : -1;
  }
  DEV int slots(int) const { return boxes; }
  DEV int slot(int) const { return box; }
};

/// The columns of a tile, and where its sums go.
template <class Tile, class Epilogue, class Params>
struct ColumnCounts {
  static constexpr int kColumns = Tile::kN / Epilogue::kLanes;  ///< of a lane of the tile
  const Params& p;
  int column, columns;  ///< the tile's first, of all

  /// Sum number t of the tile's 2 * kColumns, or null where there is no column. `slot` is below zero for the whole.
  DEV float* at(int sample, int slot, int t) const {
    const CountSizes& c = p.sizes.count;
    const int kind = t / kColumns, col = column + t % kColumns;
    if (col >= columns) return nullptr;
    if (slot >= 0) return c.partials + (static_cast<int64_t>(sample * 2 + kind) * c.slots + slot) * columns + col;
    float* out = kind ? Epilogue::squares(p) : Epilogue::sums(p);
    return out ? out + static_cast<int64_t>(sample) * columns + col : nullptr;
  }
};

/// Adds up the tile's warps and stores the sums of each sample in them.
template <class Tile, class Crew, class Columns, class Samples>
DEV void count_tile(const Columns& columns, const Samples& samples, const float* slabs) {
  constexpr int kWarp = Columns::kColumns / (Tile::kN / Tile::kWarpN), kSlab = Tile::kSlabBytes / 4;
  constexpr int kAcross = Tile::kN / Tile::kWarpN, kDown = Tile::kM / Tile::kWarpM;
  for (int t = Crew::index(); t < 2 * Columns::kColumns; t += Tile::kSumThreads) {
    const int kind = t / Columns::kColumns, c = t % Columns::kColumns;
    const float* from = slabs + c / kWarp * kSlab + kind * kWarp + c % kWarp;
    int sample = samples.sample(0);
    float total = 0;
    NO_UNROLL for (int w = 0; w < kDown; ++w) {
      total += from[w * kAcross * kSlab];
      const int next = w + 1 < kDown ? samples.sample((w + 1) * Tile::kWarpM) : -1;
      if (next == sample) continue;
      float* out = sample < 0 ? nullptr : columns.at(sample, samples.slots(sample) > 1 ? samples.slot(sample) : -1, t);
      if (out) *out = total;
      sample = next;
      total = 0;
    }
  }
}

/// Counts a tile. `samples`: RowSamples or BoxSamples; `slab`: the warp's.
template <class Tile, class Epilogue, class Crew, class Params, class Samples>
DEV void mma_count(const Params& p, const WarpCounts<Tile, Epilogue>& counts, const Samples& samples, float* slab,
                   int column, int columns) {
  const ColumnCounts<Tile, Epilogue, Params> out{p, column, columns};
  counts.put(slab);
  Crew::sync();
  count_tile<Tile, Crew>(out, samples, slab - Crew::index() / 32 * (Tile::kSlabBytes / 4));
  Crew::sync();  // the slabs are free
}

}  // namespace tenon::device
