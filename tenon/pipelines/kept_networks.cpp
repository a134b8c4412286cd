#include "tenon/pipelines/kept_networks.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "tenon/core/clock.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/stop.h"
#include "tenon/pipelines/offload_size.h"

namespace tenon {

KeptNetworks::KeptNetworks(std::shared_ptr<Backend> backend, Weights weights, const PipelineOptions& options)
    : backend_(std::move(backend)),
      weights_(std::move(weights)),
      offload_(offload_on(*backend_, options.offload)),
      arena_(std::make_shared<Arena>(backend_)),
      keep_(options.keep_networks),
      keep_sizes_(options.keep_sizes) {}

void KeptNetworks::free_all() {
  networks_.clear();
  stores_.clear();
  arena_ = std::make_shared<Arena>(backend_);
}

void KeptNetworks::reread(const std::map<std::string, std::set<std::string>>& tensors) {
  try {
    for (const auto& [component, names] : tensors)
      if (const auto store = stores_.find(component); store != stores_.end()) store->second->reread(names);
  } catch (...) {  // some weights are new, some old
    free_all();
    throw;
  }
}

KeptNetworks::Counters KeptNetworks::counters() const {
  Counters out;
  out.prepared = prepared_;
  for (const auto& [name, sizes] : networks_) out.networks += static_cast<int>(sizes.size());
  for (const auto& [component, store] : stores_) {
    const WeightStore::Counters one = store->counters();
    out.weights.entries += one.entries;
    out.weights.bytes += one.bytes;
    out.weights.on_host += one.on_host;
    out.weights.made += one.made;
    out.weights.made_bytes += one.made_bytes;
    out.weights.remade += one.remade;
  }
  return out;
}

int64_t KeptNetworks::available() const {
  return std::min(offload_ ? offload_->bytes : std::numeric_limits<int64_t>::max(), backend_->memory_available());
}

std::unique_ptr<Executable> KeptNetworks::prepare(Plan plan, const std::string& component, Runs runs) {
  auto known = stores_.find(component);
  if (known == stores_.end())
    known = stores_.emplace(component, std::make_shared<WeightStore>(backend_, weights_(component))).first;
  const std::shared_ptr<WeightStore>& store = known->second;
  if (offload_) {
    Offload left{.bytes = offload_->bytes, .all = keep_ && runs == Runs::Once};
    for (const auto& [name, sizes] : networks_)
      for (const Ready& ready : sizes) {
        const MemoryPlan memory = ready.executable->allocated();
        left.bytes -= memory.total() - memory.weights - memory.arena - memory.scratch;
      }
    for (const auto& [name, other] : stores_) {
      const WeightStore::Counters weights = other->counters();
      if (other != store) left.bytes -= weights.bytes - weights.on_host;
    }
    store->set_offload(left);
  }
  return std::make_unique<Executable>(std::move(plan), store, std::map<std::string, void*>{}, nullptr, nullptr, arena_);
}

Executable& KeptNetworks::used(Executable& network) {
  peak_ = std::max(peak_, network.allocated().total());
  return network;
}

Executable& KeptNetworks::get(const std::string& name, const std::string& component, const std::string& key,
                              const std::function<Plan()>& plan, Runs runs) {
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  if (const auto sizes = networks_.find(name); sizes != networks_.end()) {
    const auto known = std::ranges::find(sizes->second, key, &Ready::key);
    if (known != sizes->second.end()) {
      sizes->second.splice(sizes->second.begin(), sizes->second, known);
      return used(*sizes->second.front().executable);
    }
  }
  check_stop("generate");
  const auto begin = Clock::now();
  Plan ready = plan();
  const auto planned = Clock::now();
  if (!keep_) free_all();
  while (!networks_[name].empty() && static_cast<int>(networks_[name].size()) >= keep_sizes_)
    networks_[name].pop_back();
  if (const auto store = stores_.find(component); store != stores_.end()) store->second->release_unused();
  std::unique_ptr<Executable> made;
  try {
    made = prepare(ready, component, runs);
  } catch (const Error& e) {
    const bool alone = std::ranges::all_of(networks_, [](const auto& n) { return n.second.empty(); });
    if (e.kind() != ErrorKind::Memory || alone) throw;
    free_all();  // including what is kept for other calls
    made = prepare(std::move(ready), component, runs);
  }
  ++prepared_;
  std::list<Ready>& sizes = networks_[name];
  sizes.push_front({key, std::move(made)});
  Executable& executable = *sizes.front().executable;
  executable.warm_up();
  spdlog::debug("{}: planned in {:.3f} s, weights ready in {:.3f} s", executable.plan().name, seconds(planned - begin),
                seconds(Clock::now() - planned));
  return used(executable);
}

}  // namespace tenon
