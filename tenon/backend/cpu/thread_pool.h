// The CPU backend's threads: a fixed set that takes numbered tasks from a shared counter. Work must be split into tasks
// by shape alone, so that results do not depend on the number of threads.
#pragma once
#include <cstdint>
#include <memory>

#include "tenon/core/function_ref.h"

namespace tenon::cpu {

/// A task: its number in [0, tasks) and the number of the thread that runs it, in [0, threads()).
using TaskFn = FunctionRef<void(int64_t task, int thread)>;

/// A fixed set of threads; the caller of parallel_for is thread 0. Concurrent calls of parallel_for run one after
/// another.
class ThreadPool {
 public:
  /// Starts threads - 1 workers, or, with a warning, as many as the system allows. Throws Error(Usage) unless
  /// 1 <= threads <= 1024.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  /// Runs fn(task, thread) once for every task in [0, tasks) and returns when all are done; tasks start in order. The
  /// first exception is rethrown here once running tasks have ended; tasks not yet started are dropped. A call from
  /// inside a task runs its tasks immediately on the same thread; a single task wakes no worker. Idle workers spin for
  /// about 50 us, then sleep.
  void parallel_for(int64_t tasks, TaskFn fn);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Number of processors this process may run on (its affinity mask), at least 1.
int available_processors();

}  // namespace tenon::cpu
