#include "tenon/runtime/plan_kernels.h"

#include "tenon/backend/stored_launch.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"

namespace tenon {

PlanKernels::PlanKernels(const Plan& plan, const WeightStore& store, const Buffers* states, const Arena* arena) {
  StoredLaunches results(store.backend());
  memory.arena = Arena::aligned(plan.arena_bytes);
  for (const Buffer& b : plan.buffers) {
    if (arena && b.role == BufferRole::Input && !b.outside) memory.inputs += Arena::aligned(b.bytes);
    if (b.role != BufferRole::State || b.outside) continue;
    memory.states += b.bytes;
    if (states && states->has(b.name)) memory.shared += b.bytes;
  }
  size_t parts = 0;
  std::vector<WeightRead> reads;
  for (const Phase& p : plan.phases) {
    size_t first = kernels.size();  // that runs in the phase
    for (const Launch& l : p.launches) {
      check_stop(plan.name);
      const std::shared_ptr<Kernel> kernel = store.backend()->make_kernel(l);
      const std::span<const WeightRequest> asked = kernel->weights();
      const bool stored = plan.stored(l);
      kernels.push_back({kernel, &l, p.rate, stored, parts, stored ? l.outputs.size() : asked.size()});
      parts += kernels.back().weights;
      if (stored) {
        first += first + 1 == kernels.size();
        requests.push_back(results.request(l, kernel));
        memory.transient = std::max(memory.transient, transient_bytes(*kernel));
        continue;
      }
      for (size_t i = 0; i < asked.size(); ++i) {
        const WeightRequest::Part& part = asked[i].parts[0];
        const std::optional<bool> on_host = store.on_host(part.key);
        if (store.offload() || on_host.value_or(false))  // without a limit, what an earlier one left there
          reads.push_back({kernels.size() - 1, kernels.back().first + i, first, &p != &plan.phases.back(), part.key,
                           part.bytes, on_host});
      }
      requests.insert(requests.end(), asked.begin(), asked.end());
      memory.scratch = std::max(memory.scratch, kernel->memory().scratch);
      memory.kept += kernel->memory().kept;
    }
  }
  memory.scratch = Arena::aligned(memory.scratch);
  memory.kept += memory.inputs;
  const int64_t temporaries = memory.arena + memory.scratch, there = arena ? arena->bytes() : 0;
  const int64_t unused = std::max<int64_t>(there - temporaries, 0);
  memory.shared += there - unused;
  WeightStore::Bytes bytes = store.bytes_of(requests);
  const Offload limit = store.offload().value_or(Offload{int64_t{1} << 60});
  staging = plan_staging(reads, limit, memory.total() + bytes.all + bytes.host + bytes.others + unused);
  if (!staging.offloaded.empty()) bytes = store.bytes_of(requests, staging.offloaded);
  memory.weights = bytes.all;
  memory.missing = bytes.missing;
  memory.host = bytes.host;
  memory.others = bytes.others + unused;
  memory.staging = staging.bytes;
  memory.least = staging.least;
}

void check_offload(const std::string& plan, const MemoryPlan& memory, const std::optional<Offload>& offload) {
  TENON_CHECK(Memory, !offload || memory.total() + memory.others <= offload->bytes, plan)
      << "with its weights offloaded the plan needs " << mebibytes(memory.least)
      << " of the device's memory, but its limit is " << offload->bytes / (1 << 20) << " MiB";
}

MemoryPlan plan_memory(const Plan& plan, const WeightStore& store, const Buffers* states) {
  return PlanKernels(plan, store, states).memory;
}

MemoryPlan plan_memory(const Plan& plan, const std::shared_ptr<Backend>& backend, std::optional<Offload> offload) {
  WeightStore store(backend, nullptr);
  store.set_offload(offload);
  return plan_memory(plan, store);
}

}  // namespace tenon
