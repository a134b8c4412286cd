// Which core and tile a product runs on, and into how many parts its K is cut.
#pragma once
#include <functional>

#include "tenon/backend/cuda/core_launch.h"

namespace tenon::cuda {

/// Plain f32 arithmetic; mma with cp.async, on every GPU of ours; wgmma with the copy engine, on sm_90a.
enum class Core { Simt, Mma, Wgmma };

struct ProductShape {
  int64_t m, n, k, batch;
  int lanes;
  int64_t element_bytes;
};
struct TileChoice {
  Core core = Core::Mma;
  MmaTileShape mma;
  WgmmaTileShape wgmma;
  int splits = 1;
  double time = 0;  ///< estimated, in units that choices of one product share
};

/// The tile and splits of mma whose estimated time is least: waves of blocks over the multiprocessors, each as long as
/// its steps of K, with smaller tiles less efficient and a cost for meeting.
TileChoice choose_mma(const ProductShape& product, const DeviceFacts& facts);
/// The same of wgmma; nothing if no tile fits. `tiles_m`: tiles along m by the rows of a tile.
TileChoice choose_wgmma(const ProductShape& product, const DeviceFacts& facts,
                        const std::function<int64_t(const WgmmaTileShape&)>& tiles_m);
/// True if `core` may run: not forbidden by TENON_CUDA_CORE.
bool core_allowed(Core core);

}  // namespace tenon::cuda
