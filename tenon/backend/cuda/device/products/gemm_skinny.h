// The matrix product of few rows with mma: takes as long as reading operand B once. The warps of a block split K, with
// one or two ranges each (GemmSizes::range). Each warp prefetches its K tiles of B, first into registers, further ones
// into shared memory, before the preceding kernel has ended; their sums are combined in shared memory in the order of
// the warps. The split depends on K alone: a row's result is the same alone and among other rows, and in every kernel
// that sums in this order (gemm_wgmma.h).
//
//   B [8 rows per group][32 of K] --8 bytes per lane--> half of the 16-row operand of two mma with 16 of K each;
//   A likewise --> their 8-column operand
//
// A may be computed before the product, a row per warp, into the shared memory after all warps' parts. If only a factor
// per row has to be computed from A, the lanes that hold A reduce it alongside the product, and the factor is applied
// to the sums.
// The epilogue's operands are loaded while the product is computed. The next kernel may start before this one has
// waited (CallShape::starts_next): only constants are read before the wait.
//
// grid.x = columns of a lane, rounded up to 32, / SkinnyTile::kColumns; SkinnyTile::kThreads, SkinnyShared::kBytes.
#pragma once
#include "tenon/backend/cuda/device/launches/rows.h"
#include "tenon/backend/cuda/device/products/mma_tile.h"

namespace tenon::device {

/// Up to kRows_ (8, or a multiple of 16) rows, kGroups_ times 8 columns of each lane, kWarps_ warps that split K. Each
/// warp has kHeld_ K tiles of 32 in flight in registers and kSlots_ in shared memory (0: there are no more K tiles).
/// kWalks_: persistent blocks, which keep what they computed before the first product.
template <int kRows_, int kGroups_, int kWarps_, int kHeld_, int kSlots_, bool kWalks_ = false>
struct SkinnyTile {
  static constexpr int kRows = kRows_, kHalves = kRows / 8, kGroups = kGroups_, kWarps = kWarps_;
  static constexpr int kRanges = kSumRanges / kWarps;  ///< per warp
  static constexpr bool kWalks = kWalks_;
  static constexpr int kHeld = kHeld_, kSlots = kSlots_;
  static constexpr int kThreads = 32 * kWarps, kColumns = 8 * kGroups;
  static constexpr int kTileK = 32;  ///< of K
  static_assert(kRows == 8 || (kRows % 16 == 0 && kRows <= 64), "fragments of 8 rows");
  static_assert(kWarps == 16 || (kWarps == 8 && kHeld == 0), "a range a warp, or two");
};

/// Fragments of 32 of K: lane 4r + q holds, for row r, the words of four columns of the first 16 and of four of the
/// other 16. Which four does not matter if both operands use the same: those that an exchange between two lanes gives
/// (SkinnyChunk).
struct SkinnyFragments {
  uint32_t words[4];

  DEV static int column() { return lane() % 2 * 8 + lane() / 2 % 2 * 4; }
  /// Loads from two places in shared memory; zeros from `end` on.
  template <class Operand, bool kNear>
  DEV void load(const typename Operand::Row& row, int first, int end) {
    static_assert(kNear);
    UNROLL for (int h = 0; h < 2; ++h) {
      const int at = first + 16 * h + column();
      words[2 * h] = words[2 * h + 1] = 0;
      if (at >= end) continue;
      const auto x = device::load<uint32_t, 2>(reinterpret_cast<const uint32_t*>(Operand::at(row, at)));
      words[2 * h] = x.v[0], words[2 * h + 1] = x.v[1];
    }
  }
  DEV const SkinnyFragments& fragments() const { return *this; }
};
/// The same data loaded as columns 8q .. 8q + 7, from one place: half as many loads, each touching as many cache lines.
struct SkinnyChunk {
  uint32_t words[4];

  /// kNear: the operand is reread and may be cached in L1.
  template <class Operand, bool kNear = false>
  DEV void load(const typename Operand::Row& row, int first, int end) {
    const int at = first + lane() % 4 * 8;
    UNROLL for (int i = 0; i < 4; ++i) words[i] = 0;
    if (at >= end) return;
    if constexpr (kNear) {
      const auto x = device::load<uint32_t, 4>(reinterpret_cast<const uint32_t*>(Operand::at(row, at)));
      UNROLL for (int i = 0; i < 4; ++i) words[i] = x.v[i];
    } else {
      copy_past_l1<16>(words, Operand::at(row, at));
    }
  }
  /// Lanes 4r + q and 4r + q + 2 exchange halves.
  DEV SkinnyFragments fragments() const {
    const bool first = lane() % 4 < 2;
    SkinnyFragments out;
    UNROLL for (int i = 0; i < 2; ++i) {
      const uint32_t other = shuffle_xor(first ? words[2 + i] : words[i], 2);
      out.words[i] = first ? words[i] : other;
      out.words[2 + i] = first ? other : words[2 + i];
    }
    return out;
  }
};

/// The format in which operand A is loaded: cache lines do not matter for shared memory.
template <bool kShared>
struct SkinnyLeft {
  using Type = SkinnyChunk;
};
template <>
struct SkinnyLeft<true> {
  using Type = SkinnyFragments;
};

/// Operand A lies in memory.
struct NoFront {
  static constexpr bool kGiven = false;
};
/// Every block computes operand A before the product into its own shared memory: whole rows of up to R * kWidth * 32
/// columns, one per warp, with Program as in device/launches/rows.h.
template <class Program, int R>
struct RowsInFront {
  static constexpr bool kGiven = true;
  template <class Params>
  DEV static void compute(const Params& p) {
    NO_UNROLL for (int row = warp(); row < p.sizes.m; row += block_threads() / 32) {
      typename Program::template Loads<R> loads;
      Program::template loads<R>(p, row, p.sizes.k, WarpTeam{true}, loads);
      Program::template run<R>(p, row, p.sizes.k, WarpTeam{true}, loads);
    }
  }
};

/// Nothing is reduced alongside the product.
struct NoReduction {
  static constexpr bool kGiven = false;
};
/// Reduction T (device/launches/rows.h), per row, of what Part::compute makes of A's elements.
template <class Part_, class T_>
struct ReducesBeside {
  static constexpr bool kGiven = true;
  using Part = Part_;
  using T = T_;
};

/// Shared memory. Each warp's part first holds its K tiles of B in flight, [slot][tile][row][64 bytes], with the halves
/// of every other pair of rows swapped to avoid bank conflicts. Its sums, [tile][half][column][row], replace them in
/// the end, or lie next to them if blocks are persistent or warps have two ranges; the last four columns are shifted by
/// 8 floats, so that 8 rows of pairs of columns have no bank conflicts. After all warps' parts come their reductions,
/// [warp][row].
template <class Tile, int kLanes>
struct SkinnyShared {
  static constexpr int kTiles = kLanes * Tile::kGroups;
  static constexpr int kTileSums = 72;  ///< floats for 8 rows
  static constexpr int kRing = Tile::kSlots * kTiles * 512, kSums = kTiles * Tile::kHalves * kTileSums * 4;
  static constexpr int kSumsAt = Tile::kWalks || Tile::kRanges > 1 ? kRing : 0;
  static constexpr int kWarpBytes = kRing > kSumsAt + kSums ? kRing : kSumsAt + kSums;
  static constexpr int kBytes = Tile::kWarps * kWarpBytes;

  /// This lane's row of a K tile, from `column` on.
  DEV static uint32_t* slot(int slot, int tile, int column) {
    return reinterpret_cast<uint32_t*>(shared_memory() + warp() * kWarpBytes + (slot * kTiles + tile) * 512 +
                                       lane() / 4 * 64 + (column ^ lane() / 8 % 2 * 16) * 2);
  }
  DEV static float* sums(int warp, int tile, int half) {
    return reinterpret_cast<float*>(shared_memory() + warp * kWarpBytes + kSumsAt) +
           (tile * Tile::kHalves + half) * kTileSums;
  }
  DEV static int place(int row, int column) { return column * 8 + column / 4 * 8 + row % 8; }
  DEV static float* reduced(int warp) {
    return reinterpret_cast<float*>(shared_memory() + kBytes) + warp * Tile::kRows;
  }
  /// One result, summed in the order of the ranges, two at a time.
  DEV static float total(int tile, int row, int column) {
    const int at = place(row, column);
    float sum = 0;
    UNROLL for (int w = 0; w < kSumRanges / 2; ++w) {
      float two = sums(w, tile, row / 8)[at];
      if constexpr (Tile::kRanges == 1) two += sums(w + kSumRanges / 2, tile, row / 8)[at];
      sum += two;
    }
    return sum;
  }
};

/// What an epilogue loads in advance, if it has separate loads.
template <class Epilogue>
struct LoadsOf {
  struct Type {};
};
template <class Epilogue>
requires requires { typename Epilogue::Loads; }
struct LoadsOf<Epilogue> {
  using Type = typename Epilogue::Loads;
};

/// A lane's part of a reduction alongside the product, and the total.
template <class Tile, class Shared, class Reduction>
struct SkinnyReduction {
  DEV void add(const auto&, int, int, const auto&, auto) {}
  DEV void leave() const {}
};
template <class Tile, class Shared, class Part, class T>
struct SkinnyReduction<Tile, Shared, ReducesBeside<Part, T>> {
  float sums[Tile::kHalves];
  DEV SkinnyReduction() { UNROLL for (float& x : sums) x = static_cast<float>(T::init); }
  /// Adds this lane's columns of the row in half `half`, from the K tile that starts at `first`.
  template <class Element>
  DEV void add(const auto& p, int half, int first, const SkinnyChunk& chunk, Element) {
    const int row = 8 * half + lane() / 4, column = first + lane() % 4 * 8;
    if (row >= p.sizes.m || column >= p.sizes.k) return;
    const auto x = to_floats(reinterpret_cast<const Frag<Element, 8>&>(chunk.words));
    UNROLL for (int c = 0; c < 8; c += Part::kWidth) {
      Frag<float, Part::kWidth> part[1];
      UNROLL for (int i = 0; i < Part::kWidth; ++i) part[0].v[i] = x.v[c + i];
      const auto values = Part::compute(p, row, column + c, part).counted;
      UNROLL for (int i = 0; i < Part::kWidth; ++i) sums[half] = step<T>(sums[half], values.v[i]);
    }
  }
  /// Stores the warp's result in shared memory.
  DEV void leave() const {
    UNROLL for (int h = 0; h < Tile::kHalves; ++h) {
      const float all = combine_lanes<T, 4>(sums[h]);
      if (lane() % 4 == 0) Shared::reduced(warp())[8 * h + lane() / 4] = all;
    }
  }
  DEV static float total(const auto& p, int row) {
    float all = Shared::reduced(0)[row];
    UNROLL for (int w = 1; w < Tile::kWarps; ++w) all = combine<T>(all, Shared::reduced(w)[row]);
    return T::template finish<float>(all, static_cast<float>(p.sizes.k));
  }
};

/// The epilogue for an item, two columns of a row. Items are distributed over the block's threads; with 16 rows,
/// adjacent items are in adjacent rows, so that their sums are in different banks.
template <class Tile, class B, class Epilogue, class Reduction>
struct SkinnyResults {
  using Shared = SkinnyShared<Tile, Epilogue::kLanes>;
  static constexpr int kLanes = Epilogue::kLanes, kWidth = Epilogue::kWidth, kCalls = 2 / kWidth;
  static_assert(kWidth <= 2);
  static constexpr bool kLoadsApart = requires { typename Epilogue::Loads; };
  static constexpr bool kSideBySide = Tile::kRows > 8;

  /// Number of items of a block.
  DEV static int items(int rows) { return (kSideBySide ? Tile::kRows : rows) * Tile::kGroups * 4; }
  int group, row, pair, column, columns;
  typename LoadsOf<Epilogue>::Type loads[kCalls];

  DEV SkinnyResults(int item, int first, int columns)
      : group(kSideBySide ? item / 4 / Tile::kRows : item / 4 % Tile::kGroups),
        row(kSideBySide ? item / 4 % Tile::kRows : item / 4 / Tile::kGroups),
        pair(item % 4),
        columns(columns) {
    const int stored = first + 8 * group + 2 * pair;
    column = B::kPermuted ? stored / 32 * 32 + permuted_column(stored % 32) : stored;
  }
  template <class Params>
  DEV void load(const Params& p) {
    if constexpr (kLoadsApart) {
      UNROLL for (int c = 0; c < kCalls; ++c) if (row < p.sizes.m && column + c * kWidth < columns) loads[c] =
          Epilogue::loads(p, row, column + c * kWidth);
    }
  }
  template <class Params>
  DEV void store(const Params& p) const {
    UNROLL for (int c = 0; c < kCalls; ++c) {
      const int at = column + c * kWidth;
      if (row >= p.sizes.m || at >= columns) continue;
      Frag<float, kWidth> acc[kLanes + Reduction::kGiven];
      UNROLL for (int l = 0; l < kLanes; ++l) UNROLL for (int e = 0; e < kWidth; ++e) acc[l].v[e] =
          Shared::total(l * Tile::kGroups + group, row, 2 * pair + c * kWidth + e);
      if constexpr (Reduction::kGiven)
        acc[kLanes] = splat<kWidth>(SkinnyReduction<Tile, Shared, Reduction>::total(p, row));
      if constexpr (kLoadsApart)
        Epilogue::store(p, row, at, Epilogue::compute(p, row, at, acc, loads[c]));
      else
        Epilogue::store(p, row, at, Epilogue::compute(p, row, at, acc));
    }
  }
};

/// The sums of a warp's range: a pair of groups forms the 16 rows of an operand.
template <class Tile, int kTiles>
struct SkinnyProduct {
  static constexpr int kPairs = (kTiles + 1) / 2;
  float sums[kPairs][Tile::kHalves][4] = {};
  bool second = false;  ///< the first range's sums are in shared memory

  template <class T>
  DEV void add(T, const SkinnyFragments (&right)[kTiles], const SkinnyFragments (&left)[Tile::kHalves]) {
    UNROLL for (int s = 0; s < 4; s += 2) UNROLL for (int i = 0; i < kPairs; ++i) {
      uint32_t w[4] = {right[2 * i].words[s], 0, right[2 * i].words[s + 1], 0};
      if (2 * i + 1 < kTiles) w[1] = right[2 * i + 1].words[s], w[3] = right[2 * i + 1].words[s + 1];
      UNROLL for (int h = 0; h < Tile::kHalves; ++h) {
        const uint32_t x[2] = {left[h].words[s], left[h].words[s + 1]};
        mma(T{}, sums[i][h], w, x);
      }
    }
  }
  /// Stores the sums in shared memory, added to those of the previous range.
  template <class Shared>
  DEV void leave() {
    const int at = Shared::place(lane() % 4 * 2, lane() / 4);
    UNROLL for (int t = 0; t < kTiles; ++t) UNROLL for (int h = 0; h < Tile::kHalves; ++h) {
      float* const to = Shared::sums(warp(), t, h) + at;
      Frag<float, 2> x = {};
      if (Tile::kRanges > 1 && second) x = device::load<float, 2>(to);
      UNROLL for (int e = 0; e < 2; ++e) x.v[e] += sums[t / 2][h][t % 2 * 2 + e];
      device::store(to, x);
    }
  }
};

/// The block's part of B on its way to a warp: K tiles i of kTileK columns of its ranges. With persistent blocks, the
/// next tile's K tiles follow immediately, so that copies never stop.
template <class Tile, class B, int kLanes>
struct SkinnyWeights {
  using Shared = SkinnyShared<Tile, kLanes>;
  static constexpr int kTiles = Shared::kTiles, kHeld = Tile::kHeld, kSlots = Tile::kSlots;

  typename B::Row rows[kTiles];  ///< of the tile being fetched, whose columns start at `first`
  SkinnyChunk held[kHeld > 0 ? kHeld : 1][kTiles];
  int range, begin, end;  ///< length of a range; start of the warp's first range; end of K
  int slot = 0, first, columns;
  int k_tiles, next = 0;  ///< K tiles: per tile, the same for all warps if persistent; next: then the next to fetch

  /// First column of a K tile in the warp's range, or in its second one; `end` or more past the last K tile.
  DEV int column(int k_tile) const {
    const int at = k_tile * Tile::kTileK, ranges = at < range ? 0 : at < Tile::kRanges * range ? 1 : kSumRanges;
    return begin + at + ranges * (kSumRanges / 2 - 1) * range;
  }
  template <class Params>
  DEV SkinnyWeights(const Params& p, int first, int columns)
      : range(p.sizes.range), begin(warp() * p.sizes.range), end(p.sizes.k), first(first), columns(columns) {
    constexpr int kLeastK = Tile::kTileK * kLeast;
    const int most = Tile::kRanges * range, second = begin + kSumRanges / 2 * range;
    // Negative, unless blocks are persistent, if the warp has no columns.
    if constexpr (Tile::kWalks)
      k_tiles = (most + kLeastK - 1) / kLeastK * kLeast;
    else if (Tile::kRanges > 1 && second < end)
      k_tiles = (range + least(end - second, range) + Tile::kTileK - 1) / Tile::kTileK;
    else
      k_tiles = (least(end - begin, range) + Tile::kTileK - 1) / Tile::kTileK;
    find_rows(p);
    UNROLL for (int i = 0; i < kHeld; ++i) UNROLL for (int t = 0; t < kTiles; ++t) held[i][t].template load<B>(
        rows[t], column(i), end);
    UNROLL for (int i = 0; i < kSlots; ++i) fetch_next(p, i, kHeld + i);
  }
  DEV static int least(int a, int b) { return a < b ? a : b; }
  template <class Params>
  DEV void find_rows(const Params& p) {
    UNROLL for (int t = 0; t < kTiles; ++t) {
      const int row = first + t % Tile::kGroups * 8 + lane() / 4;
      const bool inside = row < (B::kPermuted && kLanes == 1 ? (columns + 31) / 32 * 32 : columns);  // whole blocks
      rows[t] = B::row(p, t / Tile::kGroups * columns + (inside ? row : columns - 1));
    }
  }
  /// Fetches K tile `k_tile`, or with persistent blocks the next one, possibly of the next tile.
  template <class Params>
  DEV void fetch_next(const Params& p, int to, int k_tile) {
    fetch(to, Tile::kWalks ? next : k_tile);
    if (!Tile::kWalks || ++next < k_tiles) return;
    next = 0;
    first += grid_x() * Tile::kColumns;
    if (first < (columns + 31) / 32 * 32)
      find_rows(p);
    else
      end = 0;  // there is no next tile
  }
  DEV void fetch(int to, int k_tile) {
    const int in_tile = lane() % 4 * 8, at = column(k_tile) + in_tile;
    UNROLL for (int t = 0; t < kTiles; ++t)
        cp_async16(shared_address(Shared::slot(to, t, in_tile)), B::at(rows[t], at < end ? at : 0), at < end ? 16 : 0);
    cp_async_commit();
  }
  /// Takes the next kTaken K tiles from shared memory; missing ones are zeros. Once they are used, refill fetches
  /// others into their slots.
  static constexpr int kMost = Tile::kHalves > 2 || kTiles > 4 || (kTiles > 2 && Tile::kHalves + Tile::kRanges > 2) ? 1
                               : kTiles > 2 || Tile::kRanges > 1                                                    ? 2
                                                                                                                    : 4,
                       kTaken = kSlots < kMost ? kSlots : kMost, kLeast = kTaken > 0 ? kTaken : 1;
  template <int kCount>
  DEV void take(SkinnyFragments (&right)[kCount][kTiles]) const {
    cp_async_wait<kSlots - kCount>();
    sync_warp();  // other lanes' copies have arrived
    UNROLL for (int i = 0; i < kCount; ++i) UNROLL for (int t = 0; t < kTiles; ++t) UNROLL for (int h = 0; h < 2; ++h) {
      const auto words =
          device::load<uint32_t, 2>(Shared::slot((slot + i) % kSlots, t, 16 * h + SkinnyFragments::column()));
      right[i][t].words[2 * h] = words.v[0], right[i][t].words[2 * h + 1] = words.v[1];
    }
  }
  template <class Params>
  DEV void refill(const Params& p, int k_tile) {
    sync_warp();  // all lanes have read the slots
    UNROLL for (int i = 0; i < kTaken; ++i) {
      fetch_next(p, slot, k_tile + i + kSlots);
      slot = slot + 1 == kSlots ? 0 : slot + 1;
    }
  }
};

/// Sums a warp's K tiles. kShared: A is in shared memory; otherwise a few K tiles of it are in flight at a time.
template <class Tile, class A, bool kShared, class Weights, class Reduction, class Params>
DEV void skinny_sums(const Params& p, Weights& weights, SkinnyProduct<Tile, Weights::kTiles>& product,
                     Reduction& reduction) {
  using T = typename A::T;
  using Left = typename SkinnyLeft<kShared>::Type;
  constexpr int kHalves = Tile::kHalves, kHeld = Tile::kHeld;
  constexpr int kTaken = Weights::kTaken, kOnWay = kTaken == 0 ? 1 : (Tile::kSlots + kTaken - 1) / kTaken;
  constexpr int kInFlight = (Tile::kRanges > 1 ? 4 : 8) / kHalves;  // K tiles of A in flight, at least kTaken
  constexpr int kMaxTurns = kShared || kTaken == 0 || kInFlight < kTaken ? 1 : kInFlight / kTaken;
  constexpr int kTurns = kMaxTurns < kOnWay ? kMaxTurns : kOnWay;
  constexpr int kNext = kTaken * kTurns, kFirst = kHeld + (kShared ? 0 : kNext);
  const GemmSizes& g = p.sizes;
  const int member = lane() / 4, k_tiles = weights.k_tiles, second = g.range / Tile::kTileK;
  typename A::Row rows[kHalves];
  UNROLL for (int h = 0; h < kHalves; ++h) rows[h] = A::row(p, 8 * h + member < g.m ? 8 * h + member : 0);
  const auto load = [&](Left(&left)[kHalves], int k_tile) {
    UNROLL for (int h = 0; h < kHalves; ++h) left[h].template load<A, kShared || Tile::kWalks || (Tile::kRows > 16)>(
        rows[h], weights.column(k_tile), 8 * h + member < g.m ? g.k : 0);
  };
  const auto add = [&](const SkinnyFragments(&right)[Weights::kTiles], const Left(&left)[kHalves], int k_tile) {
    SkinnyFragments fragments[kHalves];
    UNROLL for (int h = 0; h < kHalves; ++h) fragments[h] = left[h].fragments();
    product.add(T{}, right, fragments);
    UNROLL for (int h = 0; h < kHalves; ++h) reduction.add(p, h, weights.column(k_tile), left[h], T{});
  };
  const auto add_taken = [&](const Left(*left)[kHalves], int k_tile) {
    if constexpr (kTaken > 0) {
      if (k_tile >= k_tiles) return;
      if (Tile::kRanges > 1 && k_tile == second) {  // a multiple of two, so kTaken divides it
        product.template leave<typename Weights::Shared>();
        product = {.second = true};
      }
      SkinnyFragments right[kTaken][Weights::kTiles];
      weights.take(right);
      UNROLL for (int i = 0; i < kTaken; ++i) add(right[i], left[i], k_tile + i);
      weights.refill(p, k_tile);
    }
  };
  Left left[kFirst > kNext ? kFirst : kNext][kHalves];
  UNROLL for (int i = 0; i < kFirst; ++i) load(left[i], i);
  UNROLL for (int i = 0; i < kHeld; ++i) {
    if (i >= k_tiles) continue;
    SkinnyFragments right[Weights::kTiles];
    UNROLL for (int t = 0; t < Weights::kTiles; ++t) right[t] = weights.held[i][t].fragments();
    add(right, left[i], i);
  }
  UNROLL for (int i = 0; i < (kShared ? 0 : kTurns); ++i) add_taken(left + kHeld + i * kTaken, kHeld + i * kTaken);
  if constexpr (kTaken > 0) {
    NO_UNROLL for (int first = kFirst; first < k_tiles; first += kNext) {
      UNROLL for (int i = 0; i < kNext; ++i) load(left[i], first + i);
      UNROLL for (int i = 0; i < kTurns; ++i) add_taken(left + i * kTaken, first + i * kTaken);
    }
  }
}

/// One tile.
template <class Tile, class A, bool kShared, class Params, class B, class Epilogue, class Reduction>
DEV void skinny_tile(const Params& p, SkinnyWeights<Tile, B, Epilogue::kLanes>& weights,
                     const SkinnyResults<Tile, B, Epilogue, Reduction>& results, int first, int columns) {
  using Shared = SkinnyShared<Tile, Epilogue::kLanes>;
  SkinnyProduct<Tile, Shared::kTiles> product;
  SkinnyReduction<Tile, Shared, Reduction> reduction;
  skinny_sums<Tile, A, kShared>(p, weights, product, reduction);
  if constexpr (!Tile::kWalks) {
    cp_async_wait<0>();
    sync_warp();  // no lane's pending copy may overwrite sums
  }
  product.template leave<Shared>();
  reduction.leave();
  sync_block();
  const int items = results.items(p.sizes.m);
  if (thread_index() < items) results.store(p);
  for (int i = thread_index() + Tile::kThreads; i < items; i += Tile::kThreads) {
    SkinnyResults<Tile, B, Epilogue, Reduction> more(i, first, columns);
    more.load(p);
    more.store(p);
  }
}

template <class Tile, class A, class B, class Epilogue, class Front = NoFront, class Reduction = NoReduction,
          class Params>
DEV void gemm_skinny(const Params& p) {
  constexpr int kLanes = Epilogue::kLanes;
  const int columns = p.sizes.n / kLanes;
  int first = block_x() * Tile::kColumns;
  if constexpr (!B::kConstant) griddep_wait();
  griddep_launch();
  SkinnyWeights<Tile, B, kLanes> weights(p, first, columns);
  if constexpr (B::kConstant) griddep_wait();
  if constexpr (Front::kGiven) {
    Front::compute(p);
    sync_block();
  }
  SkinnyResults<Tile, B, Epilogue, Reduction> results(thread_index(), first, columns);
  results.load(p);
  while (true) {
    skinny_tile<Tile, A, Front::kGiven>(p, weights, results, first, columns);
    if constexpr (!Tile::kWalks) return;
    first += grid_x() * Tile::kColumns;
    if (first >= (columns + 31) / 32 * 32) return;
    results = {thread_index(), first, columns};
    results.load(p);
    sync_block();  // the next sums must not overwrite sums that are still read
  }
}

}  // namespace tenon::device
