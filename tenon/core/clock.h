#pragma once

#include <chrono>

namespace tenon {

using Clock = std::chrono::steady_clock;

/// Seconds since `begin`.
inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace tenon
