// Host side of device/products/gemm_skinny.h: resources of a tile, and what a kernel call with it needs. Formulas only.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "tenon/backend/cuda/products/core_call.h"

namespace tenon::cuda {

/// device::SkinnyTile as a value; its rows come from the product.
struct SkinnyTileShape {
  int groups = 1, warps = 8;
  int walkers = 0;              ///< persistent blocks that go from tile to tile; 0: one tile per block
  int slot_bytes = kSlotBytes;  ///< limit on shared memory for pieces in flight

  bool operator==(const SkinnyTileShape&) const = default;
  static constexpr int kMaxRows = 64, kMaxRowsInFront = 16, kSlotBytes = 80 << 10;
  /// The limit if rows computed before the product take `front` bytes of a block's `shared`.
  static int slot_bytes_beside(int64_t front, int shared) {
    return static_cast<int>(std::min<int64_t>(kSlotBytes, shared - front));
  }
  /// Elements of 16 bits after each row computed before the product: 8-byte reads from each of four rows have no bank
  /// conflicts.
  static constexpr int64_t kFrontPadding = 16;
  static int rows(int m) { return m > 8 ? (m + 15) / 16 * 16 : 8; }
  /// Warps meant to be resident together on a multiprocessor: 16 rows take more registers.
  static int warps_there(int m) { return m > 8 ? 16 : 24; }
  int threads() const { return 32 * warps; }
  /// Pieces of 32 columns of K per warp. Of those in flight, held() are in registers and slots() in shared memory.
  int pieces(int k) const { return sum_range(k) / 32 * (device::kSumRanges / warps); }
  int held(int m, int lanes, int k) const {
    if (warps < device::kSumRanges || groups * lanes > 4 || walkers || rows(m) > 32)
      return 0;  // registers are needed for sums, or for the next tile's pieces
    return std::clamp(pieces(k), 1, std::clamp(kHeldFragments / (groups * lanes), 1, 80 / rows(m)));
  }
  int slots(int m, int lanes, int k) const {
    const int most = std::max(2, slot_bytes / (warps * groups * lanes * 512));
    return std::min(pieces(k) - held(m, lanes, k), most);
  }
  int shared_bytes(int m, int lanes, int k) const {
    const int ring = slots(m, lanes, k) * 512, sums = rows(m) / 8 * 72 * 4;
    return warps * groups * lanes * (walkers || warps < device::kSumRanges ? ring + sums : std::max(ring, sums));
  }
  /// Shared memory for each warp's part of a reduction of every row alongside the product.
  int reduction_bytes(int m) const { return 4 * warps * rows(m); }
  /// The type in kernel source.
  std::string type(int m, int lanes, int k) const {
    std::string out = "SkinnyTile<" + std::to_string(rows(m));
    for (int x : {groups, warps, held(m, lanes, k), slots(m, lanes, k)}) out += ", " + std::to_string(x);
    return out + (walkers ? ", true>" : ">");
  }

 private:
  static constexpr int kHeldFragments = 2;
};
/// A product of at most kMaxRows rows and one batch, operand B in memory.
inline CallNeeds gemm_needs(const SkinnyTileShape& tile, const device::GemmSizes& g, int lanes) {
  CallNeeds needs;
  const int tiles = ((g.n / lanes + 31) / 32 * 4 + tile.groups - 1) / tile.groups;
  needs.shape = {.grid_x = tile.walkers ? std::min(tile.walkers, tiles) : tiles,
                 .threads = tile.threads(),
                 .shared_bytes = tile.shared_bytes(g.m, lanes, g.k),
                 .starts_next = true};
  return needs;
}

}  // namespace tenon::cuda
