// The limit that makes weights stay in host memory (staging.h).
#pragma once
#include <cstdint>

namespace tenon {

/// How much device memory a network may use.
struct Offload {
  int64_t bytes = 0;  ///< upper limit, weights included
  bool all = false;   ///< offload everything that can be, whatever memory is free
};

}  // namespace tenon
