// Which tile a tensor-core product runs on, and into how many parts its K is cut.
#pragma once
#include "tenon/backend/cuda/core_launch.h"

namespace tenon::cuda {

struct ProductShape {
  int64_t m, n, k, batch;
  int lanes;
  int64_t element_bytes;
};
struct TileChoice {
  MmaTileShape tile;
  int splits = 1;
};

/// The tile and splits whose estimated time is least: waves of blocks over the multiprocessors, each as long as its
/// steps of K, with smaller tiles less efficient and a cost for meeting.
TileChoice choose_tile(const ProductShape& product, const DeviceFacts& facts);

}  // namespace tenon::cuda
