// Run-time sizes of the sample skeleton. Filled by the host, read by kernels: plain layouts only.
#pragma once
#include "tenon/backend/cuda/device/index.h"

namespace tenon::device {

struct SampleSizes {
  int32_t tokens;    ///< per row
  int32_t capacity;  ///< scores that a warp keeps in shared memory
  int32_t held;      ///< scores of a warp's part of the row, if they stay in shared memory, else 0
};

/// Warps per block if `blocks` (one, or a cluster) share a row.
inline constexpr int sample_warps(int blocks) { return blocks > 1 ? 16 : 32; }
/// Shared memory of a block in bytes: two doubles per warp of a row, then the scores that its own warps keep, and hold.
inline constexpr int sample_shared_bytes(int blocks, int capacity, int held) {
  return sample_warps(blocks) * (16 * blocks + 4 * (capacity + held));
}

}  // namespace tenon::device
