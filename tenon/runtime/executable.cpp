#include "tenon/runtime/executable.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "tenon/core/clock.h"
#include "tenon/core/error.h"
#include "tenon/core/function_ref.h"
#include "tenon/core/host_tensor.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon {
struct Executable::State {
  struct Prepared : PlanKernels::Made {
    std::string how = {};  // of a launch whose results are stored: its kernel is gone, as is the memory bound to it
    double begin = 0, seconds = 0;
  };
  Plan plan;
  std::shared_ptr<WeightStore> store;
  std::shared_ptr<Buffers> states;
  std::shared_ptr<Backend> backend;
  std::shared_ptr<Stream> stream, last;  // its own, and the one last used
  std::map<std::string, void*> address;
  std::vector<std::shared_ptr<void>> weights;  // outlive the kernels, as does `kept`
  std::shared_ptr<Arena> arena;
  std::byte* temporaries = nullptr;     // the arena's memory when addresses were last set
  std::vector<const Buffer*> in_arena;  // buffers in the arena
  std::set<Rate> lost;                  // phases that have not run since another executable used the arena
  std::shared_ptr<void> kept;
  Staging staging;  // launches by their index below
  MemoryPlan allocated;
  std::vector<Prepared> launches;
  bool timing = false, checking = false;
  // By rate. A phase runs launch by launch the first time, and is recorded the second time.
  struct Phase {
    bool ran = false, tried = false;
    std::unique_ptr<Replay> replay;
  };
  std::map<Rate, Phase> phases;
  ~State() { Arena::leave(arena, this); }
  void allocate(const std::map<std::string, void*>& bound);
  void prepare(const PlanKernels& made);
  Stream& go_on(const std::shared_ptr<Stream>& next);
  bool replay(Stream& on, Rate rate);
  void launch(Stream& on, Rate rate);

  void check_bound(const std::map<std::string, void*>& bound) const {
    for (const Buffer& b : plan.buffers)
      TENON_CHECK(Usage, !b.outside || bound.contains(b.name), b.name)
          << "is memory outside the plan and was not bound";
    check_addresses(bound, [](const Buffer& b) {
      TENON_CHECK(Usage, !b.stored, b.name) << "is kept with the weights and cannot be bound";
    });
  }
  // Checks that the names are those of buffers, each of which passes `check`, and that there is memory.
  void check_addresses(const std::map<std::string, void*>& bound, FunctionRef<void(const Buffer&)> check) const {
    size_t found = 0;
    for (const Buffer& b : plan.buffers)
      if (const auto it = bound.find(b.name); it != bound.end()) {
        check(b);
        TENON_CHECK(Usage, it->second || !b.bytes, b.name) << "was bound to no address";
        ++found;
      }
    for (auto it = bound.begin(); it != bound.end() && found < bound.size(); ++it) plan.buffer(it->first);  // throws
  }
  void refuse_too_large() const {
    check_offload(plan.name, allocated, store->offload());
    const int64_t available = backend->memory_available();
    TENON_CHECK(Memory, allocated.needed() <= available, plan.name)
        << "the plan needs " << mebibytes(allocated.needed()) << " more than is allocated (activations "
        << mebibytes(allocated.arena) << ", weights " << mebibytes(allocated.missing) << ", states "
        << mebibytes(allocated.states) << ", scratch " << mebibytes(allocated.scratch) << "), but "
        << mebibytes(available) << " are available";
  }
  BufferTable table() {
    return [this](const std::string& name) {
      const auto it = address.find(name);
      TENON_CHECK(Internal, it != address.end(), plan.name) << "launch uses unknown buffer '" << name << "'";
      return it->second;
    };
  }
  void place() {
    temporaries = arena->memory();
    for (const Buffer* b : in_arena) address[b->name] = temporaries + b->offset;
  }
  void rebind() {
    for (Prepared& p : launches)
      if (!p.stored) p.kernel->rebind(table());
  }
  void take_arena() {
    arena->reserve(allocated.arena + allocated.scratch);  // another's failure to enlarge it may have freed it
    if (!arena->take(this, last)) return;
    for (const tenon::Phase& p : plan.phases) lost.insert(p.rate);
    if (temporaries == arena->memory()) return;
    place();
    rebind();
    for (auto& [rate, phase] : phases) phase = {phase.ran, false, nullptr};  // recordings have the old addresses
  }
  std::vector<float> read(const Buffer& b) const;
  void check_outputs(const Launch& launch) const;
  void stop_before(const Launch& next) const {
    if (!stop_asked()) return;
    last->synchronize();
    throw Error(ErrorKind::Cancelled, plan.name, "interrupted before '" + next.name + "'");
  }
};

Executable::Executable(Plan plan, std::shared_ptr<WeightStore> store, const std::map<std::string, void*>& bound,
                       std::shared_ptr<Stream> stream, std::shared_ptr<Buffers> states, std::shared_ptr<Arena> arena)
    : state_(std::make_unique<State>(), "executable") {
  State& s = *state_;
  s.plan = std::move(plan);
  TENON_CHECK(Usage, store, s.plan.name) << "needs a store of weights";
  s.store = std::move(store);
  s.backend = s.store->backend();
  TENON_CHECK(Usage, !stream || s.backend->takes(*stream), s.plan.name) << "its stream is of another backend";
  s.stream = s.last = stream ? std::move(stream) : s.backend->make_stream();
  TENON_CHECK(Usage, !states || states->backend() == s.backend, s.plan.name) << "its states are on another backend";
  TENON_CHECK(Usage, !arena || arena->backend() == s.backend, s.plan.name) << "its arena is on another backend";
  s.states = states ? std::move(states) : std::make_shared<Buffers>(s.backend);
  const PlanKernels made(s.plan, *s.store, s.states.get(), arena.get());
  s.allocated = made.memory;
  s.check_bound(bound);
  s.arena = arena ? std::move(arena) : std::make_shared<Arena>(s.backend);
  s.refuse_too_large();
  s.weights = s.store->get(made.requests, made.staging.offloaded);
  s.staging = Staging(made.staging, s.backend, s.weights);
  s.allocate(bound);
  s.prepare(made);
  dump_plan(s.plan);
}

Executable::Executable(Plan plan, std::shared_ptr<Backend> backend, const WeightSource& weights,
                       const std::map<std::string, void*>& bound, std::shared_ptr<Stream> stream,
                       std::shared_ptr<Buffers> states)
    : Executable(std::move(plan),
                 std::make_shared<WeightStore>(std::move(backend),
                                               std::shared_ptr<const WeightSource>(std::shared_ptr<void>(), &weights)),
                 bound, std::move(stream), std::move(states)) {}

void Executable::State::allocate(const std::map<std::string, void*>& bound) {
  arena->reserve(allocated.arena + allocated.scratch);
  if (arena->had_last(nullptr)) arena->take(this, stream);  // another's results stay until this runs
  kept = backend->allocate(allocated.kept);
  int64_t at = 0;
  for (const Buffer& b : plan.buffers) {
    const auto it = bound.find(b.name);
    if (it != bound.end())
      address[b.name] = it->second;
    else if (b.role == BufferRole::State)  // outlives this if others hold `states`
      address[b.name] = states->get(b).get();
    else if (allocated.inputs && b.role == BufferRole::Input)
      address[b.name] = static_cast<std::byte*>(kept.get()) + std::exchange(at, at + Arena::aligned(b.bytes));
    else if (!b.stored)
      in_arena.push_back(&b);
  }
  place();
}

void Executable::State::prepare(const PlanKernels& made) {
  int64_t kept_at = allocated.inputs;
  for (const PlanKernels::Made& m : made.kernels) {  // slowest first: stored results get addresses before they are read
    std::vector<void*> own;
    for (size_t i = 0; i < m.weights; ++i) {
      void* const place = staging.place(launches.size(), m.first + i);
      own.push_back(place ? place : weights[m.first + i].get());
    }
    Prepared& p = launches.emplace_back(Prepared{m});
    if (m.stored) {
      for (size_t i = 0; i < own.size(); ++i) address[m.launch->outputs[i].buffer] = own[i];
      p.how = std::exchange(p.kernel, nullptr)->describe();
    } else {
      m.kernel->bind(table(), own, static_cast<char*>(kept.get()) + kept_at);
      kept_at += m.kernel->memory().kept;
    }
  }
}

Executable::~Executable() = default;
Executable::Executable(Executable&&) noexcept = default;

void Executable::set(const std::string& name, const HostView& value) {
  const Buffer& b = state_->plan.buffer(name);
  TENON_CHECK(Usage, b.role == BufferRole::Input || b.role == BufferRole::State, name)
      << "is not an input of " << state_->plan.name;
  TENON_CHECK(Usage, value.dtype == b.dtype && value.shape == b.shape, name)
      << "expected " << name_of(b.dtype) << b.shape.str() << ", got " << name_of(value.dtype) << value.shape.str();
  TENON_CHECK(Usage, value.data || !b.bytes, name) << "got no address";
  state_->backend->copy_in(state_->go_on(state_->stream), state_->address.at(name), value.data, b.bytes);
}

void Executable::set(const std::string& name, std::span<const float> values) {
  const Buffer& b = state_->plan.buffer(name);
  TENON_CHECK(Usage, static_cast<int64_t>(values.size()) == b.shape.numel(), name)
      << "expected " << b.shape.numel() << " values for " << b.shape.str() << ", got " << values.size();
  const HostTensor value = HostTensor::from(b.dtype, b.shape, values);
  set(name, HostView{b.dtype, b.shape, value.data.data()});
}

void Executable::set_scalar(const std::string& name, double value) {
  const Buffer& b = state_->plan.buffer(name);
  TENON_CHECK(Usage, b.shape.numel() == 1, name) << "is " << name_of(b.dtype) << b.shape.str() << ", not one number";
  alignas(8) std::byte bytes[8];
  store_element(b.dtype, bytes, 0, value);
  set(name, HostView{b.dtype, b.shape, bytes});
}

// The stream for the next work, ordered after all work on the previous one.
Stream& Executable::State::go_on(const std::shared_ptr<Stream>& next) {
  if (next != last) next->wait(*last->mark());
  last = next;
  return *next;
}

bool Executable::State::replay(Stream& on, Rate rate) {
  Phase& phase = phases[rate];
  if (timing || checking || !phase.ran) return false;
  const auto first = std::ranges::find_if(launches, [rate](const Prepared& p) { return p.rate == rate && !p.stored; });
  if (first == launches.end()) return false;
  if (!phase.tried) phase.replay = backend->record([&](Stream& recording) { launch(recording, rate); });
  phase.tried = true;  // unless that failed
  if (!phase.replay) return false;
  stop_before(*first->launch);
  phase.replay->run(on);
  return true;
}

void Executable::enqueue(Rate rate, int n) {
  State& s = *state_;
  TENON_CHECK(Usage, n >= 0, s.plan.name) << "cannot run " << n << " times";
  TENON_CHECK(Usage, s.plan.phase(rate), s.plan.name) << "has no phase '" << name_of(rate) << "'";
  Stream& on = s.go_on(s.stream);
  s.take_arena();
  for (const tenon::Phase& p : s.plan.phases)
    if (p.rate < rate && s.lost.contains(p.rate)) enqueue(p.rate);
  for (int i = 0; i < n; ++i, s.lost.erase(rate))
    if (!s.replay(on, rate)) s.launch(on, rate), s.phases[rate].ran = true;
}

void Executable::wait() { state_->last->synchronize(); }

void Executable::run(Rate rate) {
  enqueue(rate);
  wait();
}

void Executable::State::launch(Stream& on, Rate rate) try {
  for (Prepared& p : launches) {
    if (p.rate != rate) continue;
    stop_before(*p.launch);
    if (!p.stored) {
      const auto begin = timing ? Clock::now() : Clock::time_point();
      staging.run(on, static_cast<size_t>(&p - launches.data()),
                  [&] { p.kernel->run(on, temporaries + allocated.arena); });
      if (timing) {
        on.synchronize();
        p.begin = std::chrono::duration<double>(begin.time_since_epoch()).count();
        p.seconds = seconds_since(begin);
      }
    }
    if (checking) check_outputs(*p.launch);
  }
} catch (...) {  // copies for launches that will not come would meet those of the next run
  if (allocated.staging) last->beside().synchronize();
  throw;
}

void Executable::bind(const std::map<std::string, void*>& buffers) {
  State& s = *state_;
  s.check_addresses(buffers, [&s](const Buffer& b) {
    TENON_CHECK(Usage, b.outside, b.name) << "is in the arena of " << s.plan.name << " and cannot be bound";
  });
  for (const auto& [name, memory] : buffers) s.address[name] = memory;
  s.rebind();
  s.phases.clear();  // do not record right away: a caller may bind other memory for each run
}

void Executable::start(const std::shared_ptr<Stream>& on) {
  TENON_CHECK(Usage, !on || state_->backend->takes(*on), plan().name) << "its stream is of another backend";
  Stream& stream = state_->go_on(on ? on : state_->stream);
  state_->take_arena();
  for (const tenon::Phase& p : state_->plan.phases) state_->launch(stream, p.rate);
  state_->lost.clear();
}

void Executable::wait_for(const Executable& other) { state_->go_on(state_->stream).wait(*other.state_->last->mark()); }

const std::shared_ptr<Stream>& Executable::stream() const { return state_->stream; }

std::vector<float> Executable::State::read(const Buffer& b) const {
  std::vector<float> values(static_cast<size_t>(b.shape.numel()));
  const bool direct = b.dtype == DType::F32;
  std::vector<std::byte> raw(direct ? 0 : static_cast<size_t>(b.bytes));
  void* const to = direct ? static_cast<void*>(values.data()) : raw.data();
  backend->copy_out(*last, to, address.at(b.name), b.bytes);
  if (!direct) load_floats(b.dtype, raw.data(), values);
  return values;
}

void Executable::State::check_outputs(const Launch& launch) const {
  for (const Output& o : launch.outputs) {
    const Buffer& b = plan.buffer(o.buffer);
    if (!is_float(b.dtype)) continue;
    const std::vector<float> values = read(b);
    for (size_t i = 0; i < values.size(); ++i)
      TENON_CHECK(Numeric, std::isfinite(values[i]), plan.name)
          << "launch '" << launch.name << "' wrote " << values[i] << " at element " << i << " of " << o.buffer
          << b.shape.str();
  }
}

void Executable::run_all() {
  for (const Phase& p : state_->plan.phases) run(p.rate);
}

void Executable::warm_up() {
  const bool writes_states =
      std::ranges::any_of(state_->plan.buffers, [](const Buffer& b) { return b.role == BufferRole::State; });
  if (state_->backend->records() && !writes_states) run_all();
}

std::vector<float> Executable::get(const std::string& name) const {
  const Buffer& b = state_->plan.buffer(name);
  const bool there = state_->arena->had_last(&*state_) || std::ranges::count(state_->in_arena, &b) == 0;
  TENON_CHECK(Internal, there, name) << "cannot be read: another plan has taken its memory since";
  return state_->read(b);
}

void* Executable::address(const std::string& name) const { return state_->address.at(state_->plan.buffer(name).name); }
const Plan& Executable::plan() const { return state_->plan; }
MemoryPlan Executable::allocated() const { return state_->allocated; }
void Executable::time_launches(bool on) { state_->timing = on; }
void Executable::check_finite(bool on) { state_->checking = on; }

std::vector<LaunchTime> Executable::times() const {
  std::vector<LaunchTime> out;
  for (const State::Prepared& p : state_->launches)
    if (!p.stored) out.push_back({p.launch->name, p.rate, p.begin, p.seconds});
  return out;
}

std::vector<std::string> Executable::describe(Rate rate) const {
  std::vector<std::string> out;
  for (const State::Prepared& p : state_->launches)
    if (p.rate == rate) out.push_back(p.stored ? p.how : p.kernel->describe());
  return out;
}

}  // namespace tenon
