// The kernels of a plan, each made once, and what they take together.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/arena.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/buffers.h"
#include "tenon/runtime/weight_store.h"

namespace tenon {

/// Bytes of an executable, exact and known before it is made.
struct MemoryPlan {
  int64_t arena = 0, weights = 0, scratch = 0;
  int64_t states = 0;     ///< that outlive it
  int64_t kept = 0;       ///< kernels' own, and `inputs`
  int64_t inputs = 0;     ///< that lie outside an arena which others use too
  int64_t missing = 0;    ///< of the weights, what its store does not have yet
  int64_t shared = 0;     ///< of the states and of an arena, what is there already
  int64_t transient = 0;  ///< while values of weights alone are computed, before anything but weights is allocated
  int64_t staging = 0;    ///< places of weights that wait in the host's memory; `weights` are the others
  int64_t host = 0;       ///< what these take there
  int64_t others = 0;     ///< of the store's weights on the device, and of an arena, what it does not use
  int64_t least = 0;      ///< where weights are offloaded, what Offload::bytes must be at least
  int64_t total() const { return arena + weights + states + scratch + kept + staging; }
  /// The most that making it takes beside what is there.
  int64_t needed() const { return std::max(total() - weights - shared + missing, missing + transient); }
};
/// What `plan` will take over a store, and over states that may be there.
MemoryPlan plan_memory(const Plan& plan, const WeightStore& store, const Buffers* states = nullptr);
/// Error(Memory) of `plan` if it takes more than weights were offloaded for.
void check_offload(const std::string& plan, const MemoryPlan& memory, const std::optional<Offload>& offload);
/// What it will take on a backend, over weights of its own.
MemoryPlan plan_memory(const Plan& plan, const std::shared_ptr<Backend>& backend, std::optional<Offload> offload = {});

/// Kernels that a run of a launch puts on its stream, by the launch's name.
using KernelCounts = std::map<std::string, int>;

struct PlanKernels {
  struct Made {
    std::shared_ptr<Kernel> kernel;
    const Launch* launch;
    Rate rate;
    bool stored;            ///< its results are: it runs when the store first makes them
    size_t first, weights;  ///< its weights, or its results, among the parts of all requests
  };
  std::vector<Made> kernels;            ///< in the plan's order
  std::vector<WeightRequest> requests;  ///< of all kernels, and results that are stored
  MemoryPlan memory;
  StagingPlan staging;  ///< launches by their place in `kernels`, weights among the parts of all requests

  /// Kernel::kernels of each launch, by its name.
  KernelCounts launched() const;
  /// `plan` outlives them. `arena`: that others use too.
  PlanKernels(const Plan& plan, const WeightStore& store, const Buffers* states = nullptr,
              const Arena* arena = nullptr);
};

}  // namespace tenon
