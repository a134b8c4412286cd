// The kernels of a plan, each created once, and the memory they take in total.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/arena.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/buffers.h"
#include "tenon/runtime/weight_store.h"

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
/// What `plan` will take with a store's weights, and with states that may exist already.
MemoryPlan plan_memory(const Plan& plan, const WeightStore& store, const Buffers* states = nullptr);
/// Throws Error(Memory) naming `plan` if it exceeds the limit for which weights were offloaded.
void check_offload(const std::string& plan, const MemoryPlan& memory, const std::optional<Offload>& offload);
/// What it will take on a backend, with weights of its own.
MemoryPlan plan_memory(const Plan& plan, const std::shared_ptr<Backend>& backend, std::optional<Offload> offload = {});

struct PlanKernels {
  struct Made {
    std::shared_ptr<Kernel> kernel;
    const Launch* launch;
    Rate rate;
    bool stored;            ///< its results are stored: it runs when the store first makes them
    size_t first, weights;  ///< range of its weights, or of its results, among the parts of all requests
  };
  std::vector<Made> kernels;            ///< in the plan's order
  std::vector<WeightRequest> requests;  ///< of all kernels, and for stored results
  MemoryPlan memory;
  StagingPlan staging;  ///< launches by their index in `kernels`, weights by that among the parts of all requests

  /// `plan` must outlive them. `arena`: one that is shared with other executables.
  PlanKernels(const Plan& plan, const WeightStore& store, const Buffers* states = nullptr,
              const Arena* arena = nullptr);
};

}  // namespace tenon
