#include "tenon/backend/cpu/thread_pool.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/core/log.h"

namespace tenon::cpu {
namespace {

constexpr auto kSpin = std::chrono::microseconds(50);
constexpr uint32_t kOpen = 1u << 31;

// The pool thread number as which this thread runs a task; -1 outside tasks.
thread_local int current_thread = -1;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until `value` differs from `old`. Spins first, since the next launch usually follows within microseconds.
void wait_change(const std::atomic<uint32_t>& value, uint32_t old) {
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      relax();
    }
  } while (std::chrono::steady_clock::now() < until);
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::mutex submit;
  std::atomic<uint32_t> epoch{0};  // changes when a job begins or the pool shuts down
  std::atomic<uint32_t> gate{0};   // kOpen while a job admits workers, plus the number of workers inside
  std::atomic<bool> stop{false};
  // The job; only written while no worker is inside the gate.
  TaskFn fn;
  int64_t tasks = 0;
  std::atomic<int64_t> next{0};
  std::mutex error_lock;
  std::exception_ptr error;

  void take_tasks(int thread) {
    const int outer = current_thread;
    current_thread = thread;
    for (int64_t task = next.fetch_add(1); task < tasks; task = next.fetch_add(1)) {
      try {
        fn(task, thread);
      } catch (...) {
        std::lock_guard lock(error_lock);
        if (!error) error = std::current_exception();
        next.store(tasks);
      }
    }
    current_thread = outer;
  }

  // A late worker finds the gate closed, so a small job never waits for a sleeping worker.
  bool enter() {
    uint32_t v = gate.load(std::memory_order_acquire);
    while (v & kOpen)
      if (gate.compare_exchange_weak(v, v + 1, std::memory_order_acq_rel)) return true;
    return false;
  }

  void work(int thread) {
    uint32_t seen = 0;
    for (;;) {
      wait_change(epoch, seen);
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load()) return;
      if (!enter()) continue;
      take_tasks(thread);
      gate.fetch_sub(1, std::memory_order_acq_rel);
      gate.notify_all();
    }
  }

  void run(int64_t count, TaskFn task_fn) {
    std::lock_guard lock(submit);
    fn = task_fn;
    tasks = count;
    next.store(0);
    error = nullptr;
    if (count > 1) {  // the caller runs a single task: wake nobody
      gate.store(kOpen, std::memory_order_release);
      epoch.fetch_add(1, std::memory_order_acq_rel);
      epoch.notify_all();
    }
    take_tasks(0);
    uint32_t inside = gate.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
    while (inside != 0) {
      wait_change(gate, inside);
      inside = gate.load(std::memory_order_acquire);
    }
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  TENON_CHECK(Usage, threads >= 1 && threads <= 1024, "threads") << "expected 1 to 1024, got " << threads;
  try {
    for (int i = 1; i < threads; ++i) state_->workers.emplace_back([state = state_.get(), i] { state->work(i); });
  } catch (const std::system_error& e) {  // results do not depend on the number of threads
    spdlog::warn("threads: started only {} of {}: {}", this->threads(), threads, e.what());
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true);
  state_->epoch.fetch_add(1);
  state_->epoch.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(int64_t tasks, TaskFn fn) {
  if (tasks <= 0) return;
  if (current_thread >= 0) {
    for (int64_t task = 0; task < tasks; ++task) fn(task, current_thread);
    return;
  }
  state_->run(tasks, fn);
}

int available_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? count : 1;
}

}  // namespace tenon::cpu
