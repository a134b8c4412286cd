// Sums and sums of squares of what an epilogue stores, for each column over the rows of a sample, while it is stored:
//
//   a warp's rows --slabs, a lane a column--> registers --slabs--> the tile's rows of each sample --> partial sums
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

template <class Tile, Counting Epilogue>
struct WarpCounts<Tile, Epilogue> {
  static constexpr int kLane = Tile::kSlabColumns / Epilogue::kLanes, kEach = (kLane + 31) / 32;
  static constexpr int kSlabs = Tile::kWarpN / Tile::kSlabColumns, kSlabRow = Tile::kSlabColumns + 8;
  static_assert(2 * kSlabs * kLane <= 16 * kSlabRow, "a warp's sums fit its slab");
  float sums[kSlabs][kEach] = {}, squares[kSlabs][kEach] = {};

  /// Adds the 16 rows of a slab, the number `number` of the warp's.
  DEV void add(const float* slab, int number) {
    UNROLL for (int j = 0; j < kEach; ++j) {
      const int column = lane() + 32 * j;
      if (column >= kLane) continue;
      UNROLL for (int row = 0; row < 16; ++row) {
        const float x = slab[row * kSlabRow + column];
        sums[number][j] += x;
        squares[number][j] += x * x;
      }
    }
  }
  /// Writes [2][columns of the warp].
  DEV void put(float* slab) const {
    UNROLL for (int number = 0; number < kSlabs; ++number) UNROLL for (int j = 0; j < kEach; ++j) {
      const int column = lane() + 32 * j;
      if (column >= kLane) continue;
      slab[number * kLane + column] = sums[number][j];
      slab[(kSlabs + number) * kLane + column] = squares[number][j];
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
