// Moments (moments.h) of what an epilogue stores, for each column over the rows of a sample, accumulated while storing:
//
//   a warp's rows --shuffles, one column per lane--> registers --slabs--> the tile's rows of each sample --> partial
//   moments
//
// Rows are merged pairwise, in a tree: at each level a mean moves by a fraction of the difference of two, whose square
// goes into the deviations. A separate kernel (count_sums.h) combines the partial moments of a sample's tiles: counters
// in memory and the fences before them would stall every tile. The order of all additions is fixed, so that the result
// is the same in every run. An epilogue that counts has kCounts = true, a member `counted` in what it computes, and
// store_statistics(p, place, moments), where place is sample * columns + column; kWhole if a warp's 16 rows are always
// all valid or all invalid. All rows of a warp belong to one sample.
#pragma once
#include "tenon/backend/cuda/device/elements.h"
#include "tenon/backend/cuda/device/launches/moments.h"
#include "tenon/backend/cuda/device/products/core_sizes.h"

namespace tenon::device {

template <class Epilogue>
concept Counting = requires {
  requires Epilogue::kCounts;
};

/// Row distance between consecutive 16-row fragments of a warp: 16, or as the tile says.
template <class Tile>
DEV constexpr int fragment_stride() {
  if constexpr (requires { Tile::kFragmentStride; })
    return Tile::kFragmentStride;
  else
    return 16;
}

/// A warp's moments over its rows, a few columns per lane; empty if the epilogue does not count.
template <class Tile, class Epilogue>
struct WarpCounts {};

/// For results of a permuted B: lane 4h + q ends up with column 8q + h of every 32.
template <class Tile, Counting Epilogue>
struct WarpCounts<Tile, Epilogue> {
  static constexpr bool kWhole = Epilogue::kWhole;
  static constexpr int kLane = Tile::kWarpN / Epilogue::kLanes, kBlocks = kLane / 32;
  static_assert((2 * kLane + 1) * 4 <= Tile::kSlabBytes, "a warp's moments fit its slab");
  float rows = 0;  ///< finished rows
  float means[kBlocks] = {}, m2[kBlocks] = {};
  float lane_means[8], lane_m2[8];  ///< of this lane's 8 columns of a block, over its two rows
  MomentWeights of_halves, of_lanes[3], of_blocks;
  float there;

  /// Begins 16 rows: the numbers of row lane / 4 and of the row 8 below it, negative if they are not valid.
  DEV void begin_rows(const int (&numbers)[2]) {
    const bool upper = kWhole || numbers[0] >= 0, lower = kWhole || numbers[1] >= 0;
    const float one = upper ? 1.0f : 0.0f, other = lower ? 1.0f : 0.0f;
    of_halves = {lower ? (upper ? 0.5f : 1.0f) : 0.0f, upper && lower ? 0.5f : 0.0f};
    there = one + other;
    UNROLL for (int level = 0; level < 3; ++level) {
      const float theirs = kWhole ? there : shuffle_xor(there, 16 >> level);
      of_lanes[level] = weights(there, theirs);
      there += theirs;
    }
    of_blocks = weights(rows, there);
  }
  DEV void end_rows() { rows += there; }

  /// Adds columns from `first` on of this lane's eight: for the upper row (0) first, then for the lower one (1). Values
  /// outside may be anything: an invalid column is never stored; an invalid row has no weight and is replaced by 0,
  /// since NaN times 0 is NaN.
  template <int kWidth>
  DEV void add(int half, bool present, int first, const Frag<float, kWidth>& values) {
    UNROLL for (int e = 0; e < kWidth; ++e) {
      const float x = kWhole || present ? values.v[e] : 0.0f;
      if (half == 0) {
        lane_means[first + e] = x;
        lane_m2[first + e] = 0;
      } else {
        join(of_halves, lane_means[first + e], lane_m2[first + e], x, 0.0f);
      }
    }
  }
  /// Merges the block's columns across 8 lanes: each level halves the columns that a lane keeps. `first`: the first 16
  /// rows.
  DEV void end_block(int block, bool first) {
    UNROLL for (int level = 0; level < 3; ++level) {
      const int width = 4 >> level;
      const bool upper = lane() & (4 * width);
      UNROLL for (int c = 0; c < width; ++c) {
        const float mean = shuffle_xor(upper ? lane_means[c] : lane_means[c + width], 4 * width);
        const float deviations = shuffle_xor(upper ? lane_m2[c] : lane_m2[c + width], 4 * width);
        lane_means[c] = upper ? lane_means[c + width] : lane_means[c];
        lane_m2[c] = upper ? lane_m2[c + width] : lane_m2[c];
        join(of_lanes[level], lane_means[c], lane_m2[c], mean, deviations);
      }
    }
    if (first)
      means[block] = lane_means[0], m2[block] = lane_m2[0];
    else
      join(of_blocks, means[block], m2[block], lane_means[0], lane_m2[0]);
  }
  /// Writes [2][columns of the warp], then the number of rows.
  DEV void put(float* slab) const {
    UNROLL for (int block = 0; block < kBlocks; ++block) {
      const int column = block * 32 + lane() % 4 * 8 + lane() / 4;
      slab[column] = means[block];
      slab[kLane + column] = m2[block];
    }
    if (lane() == 0) slab[2 * kLane] = rows;
  }

 private:
  /// With whole rows the compiler knows the weights.
  DEV static MomentWeights weights(float one, float other) {
    if constexpr (kWhole)
      return {other / (one + other), one * (other / (one + other))};
    else
      return MomentWeights::of(one, other);
  }
  DEV static void join(const MomentWeights& w, float& mean, float& deviations, float their_mean, float theirs) {
    const float apart = their_mean - mean;
    mean += w.to_other * apart;
    deviations = deviations + theirs + w.spread * apart * apart;
  }
};

/// Samples of tiles with rows in plain order: tile `tile` starts at row tile * tile_rows, of `rows` in all.
struct RowSamples {
  int inner, tile, tile_rows, rows;
  /// The sample of the tile's row i, below zero outside.
  DEV int sample(int i) const {
    const int row = tile * tile_rows + i;
    return row < rows ? row / inner : -1;
  }
  /// The number of tiles that have rows of a sample, and this tile's number among them.
  DEV int slots(int sample) const { return ((sample + 1) * inner - 1) / tile_rows - first(sample) + 1; }
  DEV int slot(int sample) const { return tile - first(sample); }
  DEV int first(int sample) const { return sample * inner / tile_rows; }
};

/// Samples of tiles that are boxes of pixels: `layers` images with `pixels` pixels each, from image `image` of `images`
/// on; box `box` of an image's `boxes`.
struct BoxSamples {
  int pixels, layers, image, images, box, boxes;
  DEV int sample(int i) const {
    const int layer = i / pixels;
    return layer < layers && image + layer < images ? image + layer : -1;
  }
  DEV int slots(int) const { return boxes; }
  DEV int slot(int) const { return box; }
};

/// The columns of a tile, and where its moments are stored.
template <class Tile, class Epilogue, class Params>
struct ColumnCounts {
  static constexpr int kColumns = Tile::kN / Epilogue::kLanes;  ///< per lane of the tile
  const Params& p;
  int column, columns;  ///< the tile's first, and the total

  /// Stores the moments of the tile's column t. `slot` below zero: they are the whole sample's.
  DEV void put(int sample, int slot, int t, const Moments& moments) const {
    const CountSizes& c = p.sizes.count;
    const int col = column + t;
    if (col >= columns) return;
    if (slot < 0) return Epilogue::store_statistics(p, static_cast<int64_t>(sample) * columns + col, moments);
    float* mean = c.partials + (static_cast<int64_t>(sample) * 2 * c.slots + slot) * columns + col;
    mean[0] = moments.mean;
    mean[static_cast<int64_t>(c.slots) * columns] = moments.m2;
    if (col == 0) c.rows[sample * c.slots + slot] = moments.count;
  }
};

/// Combines the moments of the tile's warps and stores them for each sample.
template <class Tile, class Crew, class Columns, class Samples>
DEV void count_tile(const Columns& columns, const Samples& samples, const float* slabs) {
  constexpr int kWarp = Columns::kColumns / (Tile::kN / Tile::kWarpN), kSlab = Tile::kSlabBytes / 4;
  constexpr int kAcross = Tile::kN / Tile::kWarpN, kDown = Tile::kM / Tile::kWarpM;
  constexpr bool kScattered = fragment_stride<Tile>() != 16 && Tile::kWarpM > 16;  // then all rows are of one sample
  for (int t = Crew::index(); t < Columns::kColumns; t += Tile::kSumThreads) {
    const float* from = slabs + t / kWarp * kSlab;
    int sample = samples.sample(0);
    MomentSums sums;
    NO_UNROLL for (int w = 0; w < kDown; ++w) {
      const float* slab = from + w * kAcross * kSlab;
      sums.add({slab[2 * kWarp], slab[t % kWarp], slab[kWarp + t % kWarp]});
      const int next = w + 1 == kDown ? -1 : kScattered ? sample : samples.sample((w + 1) * Tile::kWarpM);
      if (next == sample) continue;
      if (sample >= 0) columns.put(sample, samples.slots(sample) > 1 ? samples.slot(sample) : -1, t, sums.total());
      sample = next;
      sums = {};
    }
  }
}

/// Counts a tile. `samples`: RowSamples or BoxSamples; `slab`: this warp's.
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
