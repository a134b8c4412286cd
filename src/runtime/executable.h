// An executable: a plan prepared on a backend.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tenon/runtime/plan_kernels.h"

namespace tenon {

/// Seconds that a launch took in its last timed run; of launches whose results are stored there is none.
struct LaunchTime {
  std::string name;
  Rate rate;
  double seconds;
};

/// Asked while work is going on: true ends it with Error(Cancelled).
using StopCheck = std::function<bool()>;

/// Not thread-safe; one run at a time.
class Executable {
 public:
  /// Allocates and prepares everything, over the store's weights. Refuses with Error(Memory) before allocating if it
  /// does not fit the backend. `bound`: buffers that live in the caller's memory instead of the arena; every one that
  /// the plan has outside, none that is stored.
  Executable(Plan plan, std::shared_ptr<WeightStore> store, const std::map<std::string, void*>& bound = {});
  /// Over weights of its own, which are read now and never again.
  Executable(Plan plan, std::shared_ptr<Backend> backend, const WeightSource& weights,
             const std::map<std::string, void*>& bound = {});
  ~Executable();
  Executable(Executable&&) noexcept;

  /// Copies a host tensor into input `name`; dtype and shape must be the buffer's.
  void set(const std::string& name, const HostView& value);
  /// f32 host values converted to the input's dtype.
  void set(const std::string& name, std::span<const float> values);
  void set_scalar(const std::string& name, double value);
  /// Runs the launches of one phase. Phases run slowest first; a slower phase runs again only when its inputs change.
  void run(Rate rate = Rate::Step);
  /// All phases, slowest first.
  void run_all();
  /// Part of loading: where the backend records, runs all phases once over whatever inputs there are, so that kernels
  /// and libraries are loaded and the next run is recorded. Elsewhere nothing.
  void warm_up();
  /// From the next run on these buffers of the caller's are elsewhere: address by name, of the same device and, on a
  /// GPU, 16-byte aligned. Error(Usage) for a buffer that is not outside.
  void bind(const std::map<std::string, void*>& buffers);
  /// run_all without waiting for its end, on the stream that the backend uses now. Scalars, temporaries and scratch are
  /// in use until then: start again on the same stream only.
  void start();
  /// Copies an output (or any buffer) to f32 host values.
  std::vector<float> get(const std::string& name) const;

  const Plan& plan() const;
  /// Bytes really allocated, to compare with plan_memory.
  MemoryPlan allocated() const;
  /// From now on `stop` is asked before every launch. A run that it ended leaves the buffers of the rest as they were.
  void stop_when(StopCheck stop);
  /// From now on every run records the time of each launch (and waits for it).
  void time_launches(bool on);
  std::vector<LaunchTime> times() const;
  /// From now on every run checks outputs of each launch for non-finite values: Error(Numeric) names the launch.
  void check_finite(bool on);
  /// How each launch of a phase runs, as Kernel::describe; empty for one whose results the store had already.
  std::vector<std::string> describe(Rate rate = Rate::Step) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenon
