// An executable: a plan prepared on a backend.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/arena.h"
#include "tenon/core/not_null.h"
#include "tenon/runtime/buffers.h"
#include "tenon/runtime/memory_plan.h"
#include "tenon/runtime/weight_store.h"

namespace tenon {

/// When a launch began in its last timed run, in seconds of a steady clock, and how long it took. Launches whose
/// results are stored have none.
struct LaunchTime {
  std::string name;
  Rate rate;
  double begin, seconds;
};

/// A plan with its own memory and a store's weights, which submits work to a stream. Call it from one thread at a time;
/// several executables, over one store or several, may be used by several threads. Calls check_stop() before every
/// launch that it prepares or runs; a run interrupted that way leaves the buffers of the remaining launches unchanged.
class Executable {
 public:
  /// Allocates and prepares everything, with the store's weights. If that does not fit the backend, throws
  /// Error(Memory) before allocating. `bound`: buffers in the caller's memory rather than the arena; must contain every
  /// buffer that the plan has outside, and only buffers of the plan that are not stored. `stream`: where its work goes;
  /// by default a new one. `states`: holds the plan's states, on the same backend; by default it owns its states,
  /// initially zero. `arena`: memory for its temporaries while it runs; executables that share an arena run in turn, on
  /// one thread, and their results must be read before another one runs, or is prepared and needs a larger arena. Its
  /// inputs keep their values; slower phases run again if another executable has run in between.
  Executable(Plan plan, std::shared_ptr<WeightStore> store, const std::map<std::string, void*>& bound = {},
             std::shared_ptr<Stream> stream = nullptr, std::shared_ptr<Buffers> states = nullptr,
             std::shared_ptr<Arena> arena = nullptr);
  /// With weights of its own, which are read now and never again.
  Executable(Plan plan, std::shared_ptr<Backend> backend, const WeightSource& weights,
             const std::map<std::string, void*>& bound = {}, std::shared_ptr<Stream> stream = nullptr,
             std::shared_ptr<Buffers> states = nullptr);
  ~Executable();
  Executable(Executable&&) noexcept;

  /// Copies a host tensor to the input or state `name`; dtype and shape must be the buffer's.
  void set(const std::string& name, const HostView& value);
  /// f32 host values converted to the input's dtype.
  void set(const std::string& name, std::span<const float> values);
  /// The same for an input of one element.
  void set_scalar(const std::string& name, double value);
  /// Runs the launches of one phase and waits for them. Run phases slowest first; a slower phase only needs to run
  /// again when its inputs change.
  void run(Rate rate = Rate::Step);
  /// Runs all phases, slowest first, and waits for them.
  void run_all();
  /// Enqueues `n` runs of a phase of the plan without waiting; a GPU replays one recording `n` times.
  void enqueue(Rate rate, int n = 1);
  /// Waits for all work that it has enqueued on any stream.
  void wait();
  /// Part of loading: if the backend records, runs all phases once with whatever inputs there are, so that kernels and
  /// libraries are loaded and the next run is recorded. Does nothing on other backends, or if it would write states.
  void warm_up();
  /// Changes the addresses of the caller's buffers from the next run on, by name: memory of the same device, 16-byte
  /// aligned on a GPU. Throws Error(Usage) for a buffer that is not outside.
  void bind(const std::map<std::string, void*>& buffers);
  /// Enqueues all phases, launch by launch (a caller may be recording the stream), without waiting. Scalars,
  /// temporaries and scratch are in use until the work is done. `on`: another stream of the backend, after all work
  /// enqueued so far. Later calls without a stream use the executable's own stream again, after that work.
  void start(const std::shared_ptr<Stream>& on = nullptr);
  /// Makes later work on its stream wait for the work that `other`, on the same backend, has enqueued so far.
  void wait_for(const Executable& other);
  const std::shared_ptr<Stream>& stream() const;
  /// Copies an output (or any buffer) to the host as f32 values.
  std::vector<float> get(const std::string& name) const;
  void* address(const std::string& name) const;  ///< of a buffer; valid until a shared arena has to grow

  const Plan& plan() const;
  /// Bytes actually allocated, to compare with plan_memory.
  MemoryPlan allocated() const;
  /// Whether later runs record the time of each launch (and wait for it).
  void time_launches(bool on);
  std::vector<LaunchTime> times() const;
  /// Whether later runs check each launch's outputs for non-finite values; Error(Numeric) then names the launch.
  void check_finite(bool on);
  /// check_finite(true) until the result is destroyed, which must be before this object is moved or destroyed.
  std::shared_ptr<void> checks_finite() {
    check_finite(true);
    return {nullptr, [this](void*) { check_finite(false); }};
  }
  /// How each launch of a phase runs, as Kernel::describe says.
  std::vector<std::string> describe(Rate rate = Rate::Step) const;

 private:
  struct State;
  OwnState<State> state_;
};

}  // namespace tenon
