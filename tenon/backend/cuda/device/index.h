// Index arithmetic. Division by a number known when the kernel starts: a multiplication and a shift (Granlund and
// Montgomery, "Division by invariant integers using multiplication", 1994). Shared with the host, which fills it
// (codegen/params.cpp).
#pragma once
#if defined(TENON_DEVICE) || defined(TENON_DEVICE_ON_HOST)
#include "tenon/backend/cuda/device/vocabulary.h"
#else
#include <cstdint>
#endif

namespace tenon::device {

/// For dividends below 2^31.
struct Divisor {
  uint32_t divisor, multiplier, shift;
};

#ifdef DEV
DEV int operator/(int n, const Divisor& d) {
  const uint32_t u = static_cast<uint32_t>(n);
  const uint32_t high = static_cast<uint32_t>(static_cast<uint64_t>(u) * d.multiplier >> 32);
  return static_cast<int>((high + u) >> d.shift);
}

/// Source of position i in a nearest-neighbour resize: floor(i * from / to), in f32 like nodes::Resize.
DEV int resized(int i, int from, float scale) {
  const int source = static_cast<int>(static_cast<float>(i) * scale);
  return source < from - 1 ? source : from - 1;
}
#endif

}  // namespace tenon::device
