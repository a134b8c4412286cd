#include "tenon/runtime/executable.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/expr/ops.h"
#include "tenon/runtime/dump.h"

namespace tenon {
namespace {

std::string mebibytes(int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

// Scratch starts on a cache line of its own.
constexpr int64_t kAlignment = 64;

}  // namespace

MemoryPlan plan_memory(const Plan& plan, const Backend& backend) {
  MemoryPlan m;
  m.arena = plan.arena_bytes;
  for (const Phase& p : plan.phases)
    for (const Launch& l : p.launches) {
      check_stop(plan.name);
      const LaunchMemory need = backend.memory_of(l);
      m.weights += need.weights;
      m.scratch = std::max(m.scratch, need.scratch);
    }
  m.scratch = (m.scratch + kAlignment - 1) / kAlignment * kAlignment;
  return m;
}

struct Executable::State {
  struct Prepared {
    std::unique_ptr<Kernel> kernel;
    const Launch* launch;
    Rate rate;
    double seconds = 0;
    bool ran = false;
  };
  Plan plan;
  std::shared_ptr<Backend> backend;
  std::map<std::string, void*> address;
  std::map<std::string, const Buffer*> buffer;
  std::shared_ptr<void> arena, scratch;
  MemoryPlan allocated;
  std::vector<Prepared> launches;
  bool timing = false, checking = false;
  // By rate: a phase runs launch by launch once, which binds it, and is recorded the second time.
  struct Phase {
    bool ran = false, tried = false;
    std::unique_ptr<Replay> replay;
  };
  std::map<Rate, Phase> phases;
  bool replay(Rate rate);
  void launch(Rate rate);

  BufferTable table();
  const Buffer& find(const std::string& name) const {
    const auto it = buffer.find(name);
    TENON_CHECK(Usage, it != buffer.end(), plan.name) << "no buffer '" << name << "' in this plan";
    return *it->second;
  }
  void check_outputs(const Launch& launch) const;
  void stop_before(const Launch& next) const;
};

Executable::Executable(Plan plan, std::shared_ptr<Backend> backend, const WeightSource& weights,
                       std::map<std::string, void*> bound)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.plan = std::move(plan);
  s.backend = std::move(backend);
  const MemoryPlan need = plan_memory(s.plan, *s.backend);
  const int64_t available = s.backend->memory_available();
  TENON_CHECK(Memory, need.total() <= available, s.plan.name)
      << "the plan needs " << mebibytes(need.total()) << " (activations " << mebibytes(need.arena) << ", weights "
      << mebibytes(need.weights) << ", scratch " << mebibytes(need.scratch) << "), but " << mebibytes(available)
      << " are available";
  s.arena = s.backend->allocate(need.arena);
  s.scratch = s.backend->allocate(need.scratch);
  s.allocated = need;
  for (const Buffer& b : s.plan.buffers) {
    s.buffer[b.name] = &b;
    const auto it = bound.find(b.name);
    TENON_CHECK(Usage, !b.outside || it != bound.end(), b.name) << "lives outside the plan and was not bound";
    s.address[b.name] = it != bound.end() ? it->second : static_cast<char*>(s.arena.get()) + b.offset;
  }
  for (const Phase& p : s.plan.phases)
    for (const Launch& l : p.launches) {
      check_stop(s.plan.name);
      s.launches.push_back({s.backend->prepare(l, s.table(), weights), &l, p.rate});
    }
  s.backend->synchronize();  // the first run may be on another stream
  dump_plan(s.plan);
}

BufferTable Executable::State::table() {
  return [this](const std::string& name) {
    const auto it = address.find(name);
    TENON_CHECK(Internal, it != address.end(), plan.name) << "launch uses unknown buffer '" << name << "'";
    return it->second;
  };
}

Executable::~Executable() = default;
Executable::Executable(Executable&&) noexcept = default;

void Executable::set(const std::string& name, const HostView& value) {
  const Buffer& b = state_->find(name);
  TENON_CHECK(Usage, b.role == BufferRole::Input, name) << "is not an input of " << state_->plan.name;
  TENON_CHECK(Usage, value.dtype == b.dtype && value.shape == b.shape, name)
      << "expected " << name_of(b.dtype) << b.shape.str() << ", got " << name_of(value.dtype) << value.shape.str();
  state_->backend->copy_in(state_->address.at(name), value.data, b.bytes);
}

void Executable::set(const std::string& name, std::span<const float> values) {
  const Buffer& b = state_->find(name);
  TENON_CHECK(Usage, static_cast<int64_t>(values.size()) == b.shape.numel(), name)
      << "expected " << b.shape.numel() << " values for " << b.shape.str() << ", got " << values.size();
  std::vector<std::byte> bytes(static_cast<size_t>(b.bytes));
  for (size_t i = 0; i < values.size(); ++i) store_element(b.dtype, bytes.data(), static_cast<int64_t>(i), values[i]);
  set(name, HostView{b.dtype, b.shape, bytes.data()});
}

void Executable::set_scalar(const std::string& name, double value) {
  const Buffer& b = state_->find(name);
  alignas(8) std::byte bytes[8];
  store_element(b.dtype, bytes, 0, value);
  set(name, HostView{b.dtype, b.shape, bytes});
}

bool Executable::State::replay(Rate rate) {
  Phase& phase = phases[rate];
  if (timing || checking || !std::exchange(phase.ran, true)) return false;
  if (!std::exchange(phase.tried, true))
    phase.replay = backend->record([&] {
      for (Prepared& p : launches)
        if (p.rate == rate) p.kernel->run(scratch.get());
    });
  if (!phase.replay) return false;
  const auto first =
      std::find_if(launches.begin(), launches.end(), [rate](const Prepared& p) { return p.rate == rate; });
  if (first != launches.end()) stop_before(*first->launch);
  phase.replay->run();
  return true;
}

void Executable::run(Rate rate) {
  State& s = *state_;
  if (!s.replay(rate)) s.launch(rate);
  s.backend->synchronize();
}

void Executable::State::launch(Rate rate) {
  using Clock = std::chrono::steady_clock;
  for (Prepared& p : launches) {
    if (p.rate != rate) continue;
    stop_before(*p.launch);
    const auto begin = timing ? Clock::now() : Clock::time_point();
    p.kernel->run(scratch.get());
    p.ran = true;
    if (timing) {
      backend->synchronize();
      p.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    if (checking) check_outputs(*p.launch);
  }
}

void Executable::bind(const std::map<std::string, void*>& buffers) {
  State& s = *state_;
  for (const auto& [name, memory] : buffers) {
    TENON_CHECK(Usage, s.find(name).outside, name) << "lives in the arena of " << s.plan.name;
    s.address[name] = memory;
  }
  for (State::Prepared& p : s.launches) p.kernel->rebind(s.table());
  s.phases.clear();  // what was recorded has the old addresses
}

void Executable::start() {
  for (const tenon::Phase& p : state_->plan.phases) state_->launch(p.rate);
}

void Executable::State::stop_before(const Launch& next) const {
  if (!stop_asked()) return;
  backend->synchronize();
  throw Error(ErrorKind::Cancelled, plan.name, "interrupted before '" + next.name + "'");
}

void Executable::State::check_outputs(const Launch& launch) const {
  backend->synchronize();
  for (const Output& o : launch.outputs) {
    const Buffer& b = find(o.buffer);
    if (!is_float(b.dtype)) continue;
    std::vector<std::byte> bytes(static_cast<size_t>(b.bytes));
    backend->copy_out(bytes.data(), address.at(o.buffer), b.bytes);
    for (int64_t i = 0; i < b.shape.numel(); ++i) {
      const double v = load_element(b.dtype, bytes.data(), i);
      TENON_CHECK(Numeric, std::isfinite(v), plan.name)
          << "launch '" << launch.name << "' wrote " << v << " at element " << i << " of " << o.buffer << b.shape.str();
    }
  }
}

void Executable::run_all() {
  for (const Phase& p : state_->plan.phases) run(p.rate);
}

void Executable::warm_up() {
  if (state_->backend->records()) run_all();
}

std::vector<float> Executable::get(const std::string& name) const {
  const Buffer& b = state_->find(name);
  std::vector<std::byte> bytes(static_cast<size_t>(b.bytes));
  state_->backend->copy_out(bytes.data(), state_->address.at(name), b.bytes);
  std::vector<float> values(static_cast<size_t>(b.shape.numel()));
  if (b.dtype == DType::F32)
    std::memcpy(values.data(), bytes.data(), bytes.size());
  else
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(load_element(b.dtype, bytes.data(), static_cast<int64_t>(i)));
  return values;
}

const Plan& Executable::plan() const { return state_->plan; }
MemoryPlan Executable::allocated() const { return state_->allocated; }
void Executable::time_launches(bool on) { state_->timing = on; }
void Executable::check_finite(bool on) { state_->checking = on; }

std::vector<LaunchTime> Executable::times() const {
  std::vector<LaunchTime> out;
  for (const State::Prepared& p : state_->launches) out.push_back({p.launch->name, p.rate, p.seconds});
  return out;
}

std::vector<std::string> Executable::describe(Rate rate) const {
  std::vector<std::string> out;
  for (const State::Prepared& p : state_->launches)
    if (p.rate == rate) out.push_back(p.kernel->describe());
  return out;
}

}  // namespace tenon
