#include "tenon/runtime/weight_store.h"

#include <algorithm>
#include <utility>

#include "tenon/backend/staging.h"
#include "tenon/backend/stored_launch.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/expr/ops.h"
#include "tenon/plan/one_launch.h"

namespace tenon {
// What made some entries, and can remake them.
struct WeightStore::Maker {
  WeightRequest request;
  std::vector<std::weak_ptr<Entry>> parts;
  std::vector<std::shared_ptr<Entry>> needs;
  std::set<std::string> depends;  // parameters, including those of what it needs
};

struct WeightStore::Entry {
  std::shared_ptr<void> memory;
  int64_t bytes;
  bool on_host;
  std::shared_ptr<Maker> maker;
};

// The value of a parameter that an update has replaced.
struct WeightStore::Override {
  DType dtype = DType::F32;
  Shape shape;
  std::vector<std::byte> host;
  std::shared_ptr<const void> device;
};

WeightStore::WeightStore(std::shared_ptr<Backend> backend, std::shared_ptr<const WeightSource> source)
    : backend_(std::move(backend)), source_(source ? std::move(source) : std::make_shared<HostWeights>()) {
  TENON_CHECK(Usage, backend_, "weights") << "need a backend";
}
WeightStore::~WeightStore() = default;

void WeightStore::set_offload(std::optional<Offload> offload) {
  if (offload) check_offloads(*backend_);
  offload_ = offload;
}

std::optional<bool> WeightStore::on_host(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(key);
  return it == entries_.end() ? std::nullopt : std::optional(it->second->on_host);
}

WeightStore::Bytes WeightStore::bytes_of(std::span<const WeightRequest> requests, const Keys& offloaded) const {
  const std::lock_guard lock(mutex_);
  Bytes out;
  std::set<std::string_view> seen;
  for (const auto& [key, entry] : entries_) out.others += entry->on_host ? 0 : entry->bytes;
  for (const WeightRequest& r : requests)
    for (const WeightRequest::Part& p : r.parts) {
      if (!seen.insert(p.key).second) continue;
      const auto it = entries_.find(p.key);
      const bool here = it != entries_.end(), host = here ? it->second->on_host : offloaded.contains(p.key);
      (host ? out.host : out.all) += p.bytes;
      if (!here && !host) out.missing += p.bytes;
      if (here && !host) out.others -= p.bytes;
    }
  return out;
}

// One call of `get`: tracks what is to be made, and when parameters are no longer needed.
class WeightStore::Preparation {
 public:
  Preparation(WeightStore& store, std::span<const WeightRequest> requests, const Keys& offloaded)
      : store_(store), offloaded_(offloaded) {
    std::set<std::string_view> seen;
    int64_t small = 0;
    for (const WeightRequest& r : requests) {
      bool missing = false;
      for (const WeightRequest::Part& p : r.parts) {
        if (store.entries_.contains(p.key) || !seen.insert(p.key).second) continue;
        missing = true;
        if (p.bytes < kOwnMemory) small += p.bytes;
      }
      if (!missing) continue;
      to_make_.insert(&r);
      for (const std::string& name : r.params) ++uses_[name];
    }
    if (small) block_ = store.backend_->allocate(small);
  }

  void make(const WeightRequest& r) {
    if (!to_make_.contains(&r)) return;
    const auto maker = std::make_shared<Maker>();
    maker->request = r;
    maker->depends.insert(r.params.begin(), r.params.end());
    for (const std::string& key : r.needs) {
      const auto it = store_.entries_.find(key);
      TENON_CHECK(Internal, it != store_.entries_.end(), "weights") << "a weight is needed before it is made: " << key;
      maker->needs.push_back(it->second);
      maker->depends.insert(it->second->maker->depends.begin(), it->second->maker->depends.end());
    }
    std::vector<std::shared_ptr<Entry>> parts;
    for (const WeightRequest::Part& p : r.parts)  // existing parts may be in use: leave them alone
      parts.push_back(store_.entries_.contains(p.key)
                          ? nullptr
                          : std::make_shared<Entry>(Entry{memory(p), p.bytes, offloaded_.contains(p.key), maker}));
    maker->parts.assign(parts.begin(), parts.end());
    store_.run(*maker, store_.stream());
    store_.repeated_.reset();
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i]) continue;
      store_.entries_.emplace(r.parts[i].key, parts[i]);
      ++store_.counters_.made;
      store_.counters_.made_bytes += parts[i]->bytes;
    }
    store_.makers_.push_back(maker);
    for (const std::string& name : r.params)
      if (--uses_[name] == 0) store_.source_->done(name);
  }

 private:
  // Larger parts have their own allocation; the small ones of a call share a block and are not offloaded.
  static constexpr int64_t kOwnMemory = kMinOffloaded;
  std::shared_ptr<void> memory(const WeightRequest::Part& p) {
    if (offloaded_.contains(p.key)) return store_.backend_->allocate_pinned(p.bytes);
    if (p.bytes >= kOwnMemory) return store_.backend_->allocate(p.bytes);
    std::byte* const at = static_cast<std::byte*>(block_.get()) + taken_;
    taken_ += p.bytes;
    return {block_, at};
  }

  WeightStore& store_;
  const Keys& offloaded_;
  std::set<const WeightRequest*> to_make_;
  std::map<std::string, int> uses_;  // by parameter: how many things that are still to be made use it
  std::shared_ptr<void> block_;
  int64_t taken_ = 0;
};

std::vector<std::shared_ptr<void>> WeightStore::get(std::span<const WeightRequest> requests, const Keys& offloaded) {
  const std::lock_guard lock(mutex_);
  Preparation preparation(*this, requests, offloaded);
  std::vector<std::shared_ptr<void>> out;
  for (const WeightRequest& r : requests) {
    check_stop("weights");
    preparation.make(r);
    for (const WeightRequest::Part& p : r.parts) {
      const std::shared_ptr<Entry>& entry = entries_.at(p.key);
      out.emplace_back(entry, entry->memory.get());
    }
  }
  stream().synchronize();  // users run on other streams
  return out;
}

Stream& WeightStore::stream() {
  if (!stream_) stream_ = backend_->make_stream();
  return *stream_;
}

bool WeightStore::run(const Maker& maker, Stream& on) {
  Held held;
  std::vector<void*> parts, needs;
  std::vector<std::shared_ptr<Entry>> entries;
  for (const std::weak_ptr<Entry>& part : maker.parts) {
    // Parts made together with others may have existed before, or have been released. Offloaded parts are made on the
    // device, while their places there are not allocated yet.
    const auto& entry = entries.emplace_back(part.lock());
    held.push_back(entry && !entry->on_host ? entry->memory
                                            : backend_->allocate(maker.request.parts[parts.size()].bytes));
    parts.push_back(held.back().get());
  }
  for (const std::shared_ptr<Entry>& e : maker.needs) needs.push_back(e->memory.get());
  const size_t own = held.size();
  const WeightMaking with{on, [&](const std::string& name) { return find(name, held); }, needs};
  maker.request.make(with, parts);
  for (size_t i = 0; i < entries.size(); ++i)
    if (entries[i] && entries[i]->on_host)
      backend_->copy_out(on, entries[i]->memory.get(), parts[i], entries[i]->bytes);
  if (held.size() > own) on.synchronize();
  const auto elsewhere = [](const auto& e) { return !e || e->on_host; };
  return !with.waited && held.size() == own && std::ranges::none_of(entries, elsewhere);
}

// The value of a computed parameter, in f32, in memory that `held` keeps alive.
ParamView WeightStore::compute(const Expr& value, Held& held) {
  const Plan plan = one_launch("gemm", {store("computed", value)});
  const std::shared_ptr<Kernel> kernel = backend_->make_kernel(plan.phases[0].launches[0]);
  const std::shared_ptr<void> memory = held.emplace_back(backend_->allocate(plan.buffers[0].bytes));
  const WeightMaking with{stream(), [&](const std::string& name) { return find(name, held); }};
  run_alone(*backend_, *kernel, with, [&](const std::string&) { return memory.get(); });
  return {value.dtype(), value.shape(), memory.get(), true};
}

ParamView WeightStore::find(const std::string& name, Held& held) {
  Graph g;
  if (const Expr value = computation_of(g, name)) return compute(value, held);
  if (const auto it = overrides_.find(name); it != overrides_.end()) {
    const Override& o = it->second;
    return {o.dtype, o.shape, o.device ? o.device.get() : o.host.data(), o.device != nullptr};
  }
  const HostView view = source_->find(name);
  return {view.dtype, view.shape, view.data};
}

void WeightStore::check(const std::string& name, DType dtype, const Shape& shape, const void* data) const {
  // A source may have to read or compute the tensor: ask once, not at every step of training.
  const auto updated = overrides_.find(name);
  const bool first = updated == overrides_.end();
  const HostView known = first ? source_->find(name) : HostView{updated->second.dtype, updated->second.shape, nullptr};
  if (first) source_->done(name);
  TENON_CHECK(Model, shape == known.shape, name)
      << "weight has shape " << shape.str() << ", expected " << known.shape.str();
  TENON_CHECK(Model, is_float(dtype) == is_float(known.dtype), name)
      << "weight has type " << name_of(dtype) << ", expected one like " << name_of(known.dtype);
  TENON_CHECK(Model, data || !shape.numel(), name) << "weight has no address";
}

void WeightStore::update(const std::string& name, const HostView& value) {
  const std::lock_guard lock(mutex_);
  check(name, value.dtype, value.shape, value.data);
  const std::byte* const data = static_cast<const std::byte*>(value.data);
  const int64_t bytes = value.shape.numel() * size_of(value.dtype);
  overrides_[name] = {value.dtype, value.shape, {data, data + bytes}, nullptr};
  remake({name});
}

// The last update from device memory. The same again is the same work, which a device records.
struct WeightStore::Repeated {
  std::vector<DeviceTensor> tensors;
  std::vector<std::shared_ptr<Maker>> makers;
  bool recordable = true;
  std::unique_ptr<Replay> replay;
};

void WeightStore::update(std::span<const DeviceTensor> tensors) {
  const std::lock_guard lock(mutex_);
  if (repeated_ && std::ranges::equal(tensors, repeated_->tensors) && replay()) return;
  std::set<std::string> names;
  for (const DeviceTensor& t : tensors) check(t.name, t.dtype, t.shape, t.memory.get());
  for (const DeviceTensor& t : tensors) names.insert(t.name), overrides_[t.name] = {t.dtype, t.shape, {}, t.memory};
  repeated_ = remake(names);
  repeated_->tensors.assign(tensors.begin(), tensors.end());
}

bool WeightStore::replay() {
  Repeated& r = *repeated_;
  if (std::exchange(r.recordable, false))
    r.replay = backend_->record([&](Stream& recording) {
      for (const auto& maker : r.makers) run(*maker, recording);
    });
  if (!r.replay) return false;
  r.replay->run(stream());
  counters_.remade += static_cast<int64_t>(r.makers.size());
  stream().synchronize();
  return true;
}

void WeightStore::reread(const std::set<std::string>& names) {
  const std::lock_guard lock(mutex_);
  for (const std::string& name : names) {  // the source refuses one that it does not have
    const auto reads = [&](const auto& maker) { return !maker.expired() && maker.lock()->depends.contains(name); };
    if (!overrides_.contains(name) && std::ranges::none_of(makers_, reads)) source_->find(name), source_->done(name);
  }
  for (const std::string& name : names) overrides_.erase(name);
  remake(names);
}

std::unique_ptr<WeightStore::Repeated> WeightStore::remake(const std::set<std::string>& names) {
  repeated_.reset();
  auto out = std::make_unique<Repeated>();
  std::set<std::string> read;
  std::erase_if(makers_, [](const std::weak_ptr<Maker>& m) { return m.expired(); });
  for (const std::weak_ptr<Maker>& weak : makers_) {
    const std::shared_ptr<Maker> maker = weak.lock();
    if (std::ranges::none_of(maker->depends, [&](const std::string& n) { return names.contains(n); })) continue;
    out->recordable = run(*maker, stream()) && out->recordable;
    out->makers.push_back(maker);
    ++counters_.remade;
    read.insert(maker->request.params.begin(), maker->request.params.end());
  }
  for (const std::string& param : read)
    if (!overrides_.contains(param)) source_->done(param), out->recordable = false;
  stream().synchronize();
  return out;
}

void WeightStore::release_unused() {
  const std::lock_guard lock(mutex_);
  repeated_.reset();
  // An entry that another one needs can be freed once that one is gone.
  while (std::erase_if(entries_, [](const auto& e) { return e.second.use_count() == 1; }) > 0) {
  }
  std::erase_if(makers_, [](const std::weak_ptr<Maker>& m) { return m.expired(); });
}

WeightStore::Counters WeightStore::counters() const {
  const std::lock_guard lock(mutex_);
  Counters out = counters_;
  out.entries = static_cast<int64_t>(entries_.size());
  for (const auto& [key, entry] : entries_) {
    out.bytes += entry->bytes;
    out.on_host += entry->on_host ? entry->bytes : 0;
  }
  return out;
}

}  // namespace tenon
