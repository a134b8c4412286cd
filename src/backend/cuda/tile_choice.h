// Which core and tile a product runs on, and into how many parts its K is cut: what was measured, else an estimate.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tenon/backend/cuda/core_launch.h"

namespace tenon::cuda {

/// Plain f32 arithmetic; mma with cp.async, on every GPU of ours; wgmma with the copy engine, on sm_90a.
enum class Core { Simt, Mma, Wgmma };

struct ProductShape {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  int lanes = 1;
  int64_t element_bytes = 2;
  /// Tiles along m by the rows of a wgmma tile; nothing if its boxes do not fit the operands.
  std::function<int64_t(const WgmmaTileShape&)> wgmma_tiles_m = {};
  bool counts = false;   ///< the epilogue counts what it stores, which takes registers
  bool mma = true;       ///< the mma core can do it
  std::string key = {};  ///< equal for products that take equal time on equal cores: "gemm 8192x320x320 lanes 1"
};
struct TileChoice {
  Core core = Core::Simt;
  MmaTileShape mma = {};
  WgmmaTileShape wgmma = {};
  int splits = 1;
  double time = 0;  ///< estimated, in units that choices of one product share

  /// True if both run the same core, tile and splits, whatever was estimated.
  bool same_as(const TileChoice& other) const {
    return core == other.core && mma == other.mma && wgmma == other.wgmma && splits == other.splits;
  }
  /// "wgmma 128x160 stages 5 resident 1 splits 1", and back; nothing for what is no choice.
  std::string text() const;
  static std::optional<TileChoice> parse(const std::string& text);
};

/// Every choice worth a try that the device can run, the best estimate first: waves of blocks over the multiprocessors,
/// each as long as its steps of K, with smaller tiles less efficient and a cost for meeting. TENON_CUDA_CORE leaves
/// those of one core.
std::vector<TileChoice> tile_choices(const ProductShape& product, const DeviceFacts& facts);

/// True if `core` may run: not forbidden by TENON_CUDA_CORE.
bool core_allowed(Core core);

/// What was measured for the product (tile_table.h) if the device can run it, else the best estimate.
TileChoice choose_tile(const ProductShape& product, const DeviceFacts& facts);

}  // namespace tenon::cuda
