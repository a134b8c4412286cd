// The run-time numbers of the sample skeleton. Filled by the host, read by kernels: plain layouts only.
#pragma once
#include "tenon/backend/cuda/device/index.h"

namespace tenon::device {

struct SampleSizes {
  int32_t tokens;    ///< of a row
  int32_t capacity;  ///< scores that a warp keeps in shared memory
};

/// Warps of a block where `blocks` share a row: one, or those of a cluster.
inline constexpr int sample_warps(int blocks) { return blocks > 1 ? 16 : 32; }
/// Bytes of shared memory of a block: two doubles for each warp of a row, and behind them what its own warps keep.
inline constexpr int sample_shared_bytes(int blocks, int capacity) {
  return sample_warps(blocks) * (16 * blocks + 4 * capacity);
}

}  // namespace tenon::device
