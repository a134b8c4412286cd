// Host side of device/products/gemm_skinny.h: resources of a tile, and what a kernel call with it needs. Formulas only.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "tenon/backend/cuda/products/product_core.h"

namespace tenon::cuda {

/// device::SkinnyTile as a value; its rows come from the product.
struct SkinnyTileShape {
  int groups = 1, warps = 8;
  int walkers = 0;              ///< persistent blocks that go from tile to tile; 0: one tile per block
  int slot_bytes = kSlotBytes;  ///< limit on shared memory for K tiles in flight

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
  /// K tiles of 32 columns of K per warp. Of those in flight, held() are in registers and slots() in shared memory.
  int k_tiles(int k) const { return sum_range(k) / 32 * (device::kSumRanges / warps); }
  int held(int m, int lanes, int k) const {
    if (warps < device::kSumRanges || groups * lanes > 4 || walkers || rows(m) > 32)
      return 0;  // registers are needed for sums, or for the next tile's K tiles
    return std::clamp(k_tiles(k), 1, std::clamp(kHeldFragments / (groups * lanes), 1, 80 / rows(m)));
  }
  int slots(int m, int lanes, int k) const {
    const int most = std::max(2, slot_bytes / (warps * groups * lanes * 512));
    return std::min(k_tiles(k) - held(m, lanes, k), most);
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

/// How a tile runs a product: as persistent blocks or not, and how many of them fit beside rows computed before the
/// product, or reductions of rows alongside it.
class SkinnyCall {
 public:
  /// Warps per multiprocessor if rows are computed before the product: 128 registers per thread.
  static constexpr int kWarpsInFront = 16;

  /// The product has at most SkinnyTileShape::kMaxRows rows.
  SkinnyCall(const ProductShape& product, const DeviceFacts& facts, const SkinnyTileShape& tile)
      : sizes_{.m = static_cast<int>(product.m), .n = static_cast<int>(product.n), .k = static_cast<int>(product.k)},
        lanes_(product.lanes),
        front_(product.front),
        factor_(product.factor),
        multiprocessors_(facts.multiprocessors),
        shared_(facts.shared_bytes),
        tile_(tile_for(tile)) {}

  /// The tile's type in kernel source.
  std::string type() const { return tile_.type(sizes_.m, lanes_, sizes_.k); }
  /// Shared memory of the tile itself: what lies beside it comes after it.
  int tile_bytes() const { return tile_.shared_bytes(sizes_.m, lanes_, sizes_.k); }
  /// What its kernel call needs, with all of its shared memory.
  CallNeeds needs() const {
    CallNeeds needs = gemm_needs(tile_, sizes_, lanes_);
    needs.shape.shared_bytes = bytes(tile_);
    return needs;
  }
  /// True if the device has that much shared memory for a block.
  bool fits() const { return fits(tile_); }
  /// Blocks per multiprocessor.
  int resident() const {
    if (tile_.walkers) return resident_walkers(tile_);
    if (!in_front() || tile_.warps < 8) return 1;  // the compiler may use as many registers as it likes
    return (factor_ ? tile_.warps_there(sizes_.m) : kWarpsInFront) / tile_.warps;
  }

 private:
  bool in_front() const { return front_ > 0 || factor_; }
  // All shared memory of a block: the tile's, then rows computed before the product, or the warps' partial reductions.
  int64_t bytes(const SkinnyTileShape& tile) const {
    return tile.shared_bytes(sizes_.m, lanes_, sizes_.k) + front_ + (factor_ ? tile.reduction_bytes(sizes_.m) : 0);
  }
  bool fits(const SkinnyTileShape& tile) const { return bytes(tile) <= shared_; }

  // Persistent blocks of the tile that fit on a multiprocessor.
  int resident_walkers(const SkinnyTileShape& walking) const {
    const int64_t room = shared_ / (bytes(walking) + 1024);
    return static_cast<int>(std::clamp<int64_t>(room, fits(walking), kWarpsInFront / walking.warps));
  }
  SkinnyTileShape tile_for(SkinnyTileShape tile) const {
    const auto tiles = [&](int groups) { return div_up(sizes_.n / lanes_, 8 * groups); };
    // Two blocks must fit, and next to them those of the next kernel, so that it can prefetch its weights.
    if (front_) tile.slot_bytes = SkinnyTileShape::slot_bytes_beside(front_, shared_) * 2 / 3;
    // A small second wave takes as long as a full one. Two groups, which are summed in the same order, avoid it.
    const int64_t together = std::max(kWarpsInFront / tile.warps, 1) * multiprocessors_;
    SkinnyTileShape wider = tile;
    wider.groups = 2;
    if (front_ && tile.groups == 1 && lanes_ == 1 && tiles(1) > together && tiles(2) <= together && fits(wider))
      tile = wider;
    if (!in_front() || tile.rows(sizes_.m) <= tile.warps) return tile;
    // If there are many more blocks than run together, and each would compute several rows per warp before its product,
    // persistent blocks do that only once. With fewer rows this is hidden behind loading the weights, and
    // non-persistent blocks read faster.
    SkinnyTileShape walking = tile;
    walking.walkers = 1;
    walking.walkers = static_cast<int>(resident_walkers(walking) * multiprocessors_);  // 0 if none fits
    return tiles(tile.groups) > 4 * walking.walkers ? walking : tile;
  }

  device::GemmSizes sizes_;
  int lanes_;
  int64_t front_;
  bool factor_;
  int64_t multiprocessors_;
  int shared_;
  SkinnyTileShape tile_;
};

}  // namespace tenon::cuda
