// How a tile of the skinny core (skinny_tile.h) runs a product: as persistent blocks or not, and how many of them fit
// beside rows computed before the product, or reductions of rows alongside it. Formulas only.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "tenon/backend/cuda/products/product_core.h"
#include "tenon/backend/cuda/products/skinny_tile.h"

namespace tenon::cuda {

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
