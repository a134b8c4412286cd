// An executable: a plan prepared on a backend.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/arena.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon {

/// When a launch began in its last timed run, in seconds of a steady clock, and how long it took; of launches whose
/// results are stored there is none.
struct LaunchTime {
  std::string name;
  Rate rate;
  double begin, seconds;
};

/// A plan over memory of its own and a store's weights, whose work goes to a stream. Calls come from one thread at a
/// time; several executables, over one store or several, may be used by several threads. Asks check_stop() before every
/// launch that it prepares or runs; a run that ended so leaves the buffers of the rest as they were.
class Executable {
 public:
  /// Allocates and prepares everything, over the store's weights. Refuses with Error(Memory) before allocating if it
  /// does not fit the backend. `bound`: buffers that live in the caller's memory instead of the arena; every one that
  /// the plan has outside, none that is stored. `stream`: where its work goes, a new one if there is none. `states`: of
  /// the same backend, where the plan's states are; if there is none they are its own, zeros at first. `arena`: where
  /// its temporaries are when it runs; who shares one runs in turn, on one thread, and reads results before the next
  /// one runs. What it was given stays; slower phases run again where another executable has run in between.
  Executable(Plan plan, std::shared_ptr<WeightStore> store, const std::map<std::string, void*>& bound = {},
             std::shared_ptr<Stream> stream = nullptr, std::shared_ptr<Buffers> states = nullptr,
             std::shared_ptr<Arena> arena = nullptr);
  /// Over weights of its own, which are read now and never again.
  Executable(Plan plan, std::shared_ptr<Backend> backend, const WeightSource& weights,
             const std::map<std::string, void*>& bound = {}, std::shared_ptr<Stream> stream = nullptr,
             std::shared_ptr<Buffers> states = nullptr);
  ~Executable();
  Executable(Executable&&) noexcept;

  /// Copies a host tensor into the input or state `name`; dtype and shape must be the buffer's.
  void set(const std::string& name, const HostView& value);
  /// f32 host values converted to the input's dtype.
  void set(const std::string& name, std::span<const float> values);
  void set_scalar(const std::string& name, double value);
  /// Runs the launches of one phase, and waits. Phases run slowest first; a slower phase runs again only when its
  /// inputs change.
  void run(Rate rate = Rate::Step);
  /// All phases, slowest first.
  void run_all();
  /// Puts `n` runs of a phase on the stream and waits for none of them: on a GPU they are repeats of one recording.
  void enqueue(Rate rate, int n = 1);
  /// Waits for everything that it has put on a stream.
  void wait();
  /// Part of loading: where the backend records, runs all phases once over whatever inputs there are, so that kernels
  /// and libraries are loaded and the next run is recorded. Elsewhere, and where it would write states, nothing.
  void warm_up();
  /// From the next run on these buffers of the caller's are elsewhere: address by name, of the same device and, on a
  /// GPU, 16-byte aligned. Error(Usage) for a buffer that is not outside.
  void bind(const std::map<std::string, void*>& buffers);
  /// Puts all phases on the stream, launch by launch (a caller may be recording it), and waits for none. Scalars,
  /// temporaries and scratch are in use until they are done.
  /// `on`: another stream of the backend, behind what was put on the last one. What comes next without a stream goes to
  /// the executable's own again, behind that.
  void start(const std::shared_ptr<Stream>& on = nullptr);
  /// What it puts on its stream next waits for what `other`, on the same backend, has put on its own.
  void wait_for(const Executable& other);
  const std::shared_ptr<Stream>& stream() const;
  /// Copies an output (or any buffer) to f32 host values.
  std::vector<float> get(const std::string& name) const;
  void* address(const std::string& name) const;  ///< of a buffer, until another one asks for more of a shared arena

  const Plan& plan() const;
  /// Bytes really allocated, to compare with plan_memory.
  MemoryPlan allocated() const;
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
