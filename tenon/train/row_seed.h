// Seeds of single rows of a batch: a row's draws do not depend on the other rows.
#pragma once
#include "tenon/core/philox.h"

namespace tenon::train {

/// The seed for a run's seed, a step and a row.
inline uint64_t row_seed(uint64_t seed, int64_t step, size_t row) {
  const auto bits = philox(seed, static_cast<uint64_t>(step), static_cast<uint64_t>(row) + 1);
  return static_cast<uint64_t>(bits[0]) << 32 | bits[1];
}

}  // namespace tenon::train
