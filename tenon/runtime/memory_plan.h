// How much memory an executable takes.
#pragma once
#include <algorithm>
#include <cstdint>

namespace tenon {

/// Bytes of an executable, exact and known before it is created.
struct MemoryPlan {
  int64_t arena = 0, weights = 0, scratch = 0;
  int64_t states = 0;     ///< they outlive the executable
  int64_t kept = 0;       ///< memory that kernels keep, plus `inputs`
  int64_t inputs = 0;     ///< inputs, kept outside an arena that is shared with other executables
  int64_t missing = 0;    ///< part of the weights that the store does not have yet
  int64_t shared = 0;     ///< part of the states and the arena that exists already
  int64_t transient = 0;  ///< needed while values of weights alone are computed, when only weights are allocated
  int64_t staging = 0;    ///< places for offloaded weights; `weights` counts the others
  int64_t host = 0;       ///< host memory of offloaded weights
  int64_t others = 0;     ///< device memory of the store's other weights, and the part of the arena it does not use
  int64_t least = 0;      ///< with offloaded weights, the minimum of Offload::bytes
  int64_t total() const { return arena + weights + states + scratch + kept + staging; }
  /// The peak of additional memory needed to create it, without copies of a tensor while one weight is made from it.
  int64_t needed() const { return std::max(total() - weights - shared + missing, missing + transient); }
};

}  // namespace tenon
