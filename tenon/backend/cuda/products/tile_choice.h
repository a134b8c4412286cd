// Which core and tile a product runs on, and into how many parts its K is cut, or which algorithm of a library: what
// was measured, else an estimate. A library takes what was measured only.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tenon/backend/cuda/libraries/matmul_library.h"
#include "tenon/backend/cuda/products/core_launch.h"

namespace tenon::cuda {

/// Plain f32 arithmetic; mma with cp.async, on every GPU of ours; wgmma with the copy engine, on sm_90a; mma for a few
/// rows; a library.
enum class Core { Simt, Mma, Wgmma, Skinny, CublasLt, Cudnn };

struct ProductShape {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  int lanes = 1;
  int64_t element_bytes = 2;
  /// Tiles along m by the rows of a wgmma tile; nothing if its boxes do not fit the operands.
  std::function<int64_t(const WgmmaTileShape&)> wgmma_tiles_m = {};
  bool counts = false;   ///< the epilogue counts what it stores, which takes registers
  bool mma = true;       ///< the mma core can do it
  bool skinny = false;   ///< the core for a few rows can do it
  int64_t front = 0;     ///< bytes that rows computed in front of it take of its shared memory
  std::string key = {};  ///< equal for products that take equal time on equal cores: "gemm 8192x320x320 lanes 1"

  /// Where a library could do all of it: what its epilogue adds (NativeEpilogue::words), the problem in its terms, and
  /// the library or null, asked for only where it matters. Else empty.
  std::string epilogue = {};
  MatmulProblem matmul = {};
  std::function<MatmulLibrary*()> library = {};
  /// The key of what was measured with this epilogue.
  std::string epilogue_key() const { return key + " epilogue " + epilogue; }
};
struct TileChoice {
  Core core = Core::Simt;
  MmaTileShape mma = {};
  WgmmaTileShape wgmma = {};
  SkinnyTileShape skinny = {};
  int splits = 1;
  double time = 0;  ///< estimated, in units that choices of one product share
  MatmulAlgorithm algorithm = {};

  /// True if both run the same core, tile and splits, whatever was estimated.
  bool same_as(const TileChoice& other) const {
    return core == other.core && mma == other.mma && wgmma == other.wgmma && skinny == other.skinny &&
           splits == other.splits && algorithm == other.algorithm;
  }
  /// "wgmma 128x160 stages 5 resident 1 cluster 1 splits 1", "skinny groups 1 warps 8", "cublaslt 13.1.0
  /// 42-1500000000", and back; nothing for what is no choice.
  std::string text() const;
  static std::optional<TileChoice> parse(const std::string& text);
};

/// Every choice of our own worth a try that the device can run, the best estimate first: waves of blocks over the
/// multiprocessors, each as long as its steps of K, with smaller tiles less efficient and a cost for meeting.
/// TENON_CUDA_CORE leaves those of one core.
std::vector<TileChoice> tile_choices(const ProductShape& product, const DeviceFacts& facts);

/// A library's choices, those it holds fastest first; none where it may not or cannot do the product.
std::vector<TileChoice> library_choices(const ProductShape& product);

/// TENON_CUDA_CORE, or nothing. Error(Usage) if it is none of its values.
std::string asked_core();
/// True if `core` may run: not forbidden by TENON_CUDA_CORE.
bool core_allowed(Core core);
/// True if TENON_CUDA_CORE asks for this library, measured or not.
bool library_asked(Core library);

/// What was measured for the product (tile_table.h), with its epilogue or else with any, if the device can run it; else
/// the best estimate. With TENON_CUDA_CORE=cublaslt the library's own first choice comes before all but its measured
/// ones.
TileChoice choose_tile(const ProductShape& product, const DeviceFacts& facts);

}  // namespace tenon::cuda
