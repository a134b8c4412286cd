// The run-time numbers of the sample skeleton. Filled by the host, read by kernels: plain layouts only.
#pragma once
#include "tenon/backend/cuda/device/index.h"

namespace tenon::device {

struct SampleSizes {
  int32_t tokens;    ///< of a row
  int32_t capacity;  ///< scores that a warp keeps in shared memory
};

inline constexpr int kSampleThreads = 1024, kSampleWarps = kSampleThreads / 32;
/// Bytes of shared memory of a block: two doubles a warp, and behind them what the warps keep.
inline constexpr int sample_shared_bytes(int capacity) { return kSampleWarps * (16 + 4 * capacity); }

}  // namespace tenon::device
