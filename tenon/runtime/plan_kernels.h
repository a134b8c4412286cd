// The kernels of a plan, each created once, and the memory they take in total.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/arena.h"
#include "tenon/backend/kernel.h"
#include "tenon/backend/staging.h"
#include "tenon/runtime/buffers.h"
#include "tenon/runtime/memory_plan.h"
#include "tenon/runtime/weight_store.h"

namespace tenon {

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
