#include "tenon/runtime/plan_kernels.h"

#include "tenon/core/stop.h"
#include "tenon/runtime/stored_launch.h"

namespace tenon {
namespace {

// Scratch starts on a cache line of its own.
constexpr int64_t kScratchAlignment = 64;

}  // namespace

PlanKernels::PlanKernels(const Plan& plan, const WeightStore& store, const Buffers* states) {
  StoredLaunches results(store.backend());
  memory.arena = plan.arena_bytes;
  for (const Buffer& b : plan.buffers) {
    if (b.role != BufferRole::State || b.outside) continue;
    memory.states += b.bytes;
    if (states && states->has(b.name)) memory.shared += b.bytes;
  }
  size_t parts = 0;
  for (const Phase& p : plan.phases)
    for (const Launch& l : p.launches) {
      check_stop(plan.name);
      const std::shared_ptr<Kernel> kernel = store.backend()->make_kernel(l);
      const std::span<const WeightRequest> asked = kernel->weights();
      const bool stored = plan.stored(l);
      kernels.push_back({kernel, &l, p.rate, stored, parts, stored ? l.outputs.size() : asked.size()});
      parts += kernels.back().weights;
      if (stored) {
        requests.push_back(results.request(l, kernel));
        memory.transient = std::max(memory.transient, transient_bytes(*kernel));
        continue;
      }
      requests.insert(requests.end(), asked.begin(), asked.end());
      memory.scratch = std::max(memory.scratch, kernel->memory().scratch);
      memory.kept += kernel->memory().kept;
    }
  memory.scratch = (memory.scratch + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  const WeightStore::Bytes bytes = store.bytes_of(requests);
  memory.weights = bytes.all;
  memory.missing = bytes.missing;
}

KernelCounts PlanKernels::launched() const {
  KernelCounts out;
  for (const Made& m : kernels) out[m.launch->name] = m.kernel->kernels();
  return out;
}

MemoryPlan plan_memory(const Plan& plan, const WeightStore& store, const Buffers* states) {
  return PlanKernels(plan, store, states).memory;
}

MemoryPlan plan_memory(const Plan& plan, const std::shared_ptr<Backend>& backend) {
  return plan_memory(plan, WeightStore(backend, nullptr));
}

}  // namespace tenon
