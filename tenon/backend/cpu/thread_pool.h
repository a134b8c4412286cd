// The CPU backend's threads: a fixed set that takes numbered tasks from a shared counter.
// Work must be cut into tasks by shape alone, so that no result depends on how many threads there are.
#pragma once
#include <cstdint>
#include <memory>

#include "tenon/core/function_ref.h"

namespace tenon::cpu {

/// A task: its number in [0, tasks) and the number of the thread that runs it in [0, threads()).
using TaskFn = FunctionRef<void(int64_t task, int thread)>;

/// A fixed set of threads; the caller of parallel_for is thread 0. One parallel_for at a time: callers from several
/// threads are served one after the other.
class ThreadPool {
 public:
  /// Starts threads - 1 workers, or as many as the system gives, with a warning; throws Error(Usage) unless
  /// 1 <= threads <= 1024.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  /// Runs fn(task, thread) once for every task in [0, tasks) and returns when all are done; tasks start in order. The
  /// first exception is rethrown here, after the tasks under way have ended; tasks not begun are dropped. A call from
  /// inside a task runs its tasks at once on the same thread; a single task wakes nobody. Idle workers spin for about
  /// 50 us, then sleep.
  void parallel_for(int64_t tasks, TaskFn fn);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Processors this process may run on (the affinity mask), at least 1.
int available_processors();

}  // namespace tenon::cpu
