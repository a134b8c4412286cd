#include "tenon/backend/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tests/support/sanitized.h"

namespace tenon::cpu {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      std::atomic<bool> bad_thread{false};
      pool.parallel_for(tasks, [&](int64_t task, int thread) {
        ++runs[static_cast<size_t>(task)];
        if (thread < 0 || thread >= threads) bad_thread = true;
      });
      for (const auto& n : runs) EXPECT_EQ(n.load(), 1);
      EXPECT_FALSE(bad_thread);
    }
  }
}

TEST(ThreadPool, ManySmallJobsAndPauses) {
  ThreadPool pool(3);
  int64_t sum = 0;
  std::vector<int64_t> values(8);
  for (int round = 0; round < 3000; ++round) {
    pool.parallel_for(8, [&](int64_t task, int) { values[static_cast<size_t>(task)] = task + round; });
    for (int64_t v : values) sum += v;
    if (round % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // workers go to sleep
  }
  EXPECT_EQ(sum, 3000 * 28 + 8 * (2999 * 3000 / 2));
}

TEST(ThreadPool, ExceptionsReachTheCaller) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ran{0};
    EXPECT_THROW(pool.parallel_for(1000,
                                   [&](int64_t task, int) {
                                     ++ran;
                                     if (task == 3) throw std::runtime_error("task 3");
                                   }),
                 std::runtime_error);
    EXPECT_LE(ran.load(), 1000);
    std::atomic<int> after{0};
    pool.parallel_for(10, [&](int64_t, int) { ++after; });
    EXPECT_EQ(after.load(), 10);
  }
}

TEST(ThreadPool, NestedCallsRunInPlace) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  std::atomic<bool> moved{false};
  pool.parallel_for(4, [&](int64_t, int outer) {
    pool.parallel_for(5, [&](int64_t task, int inner) {
      sum += task;
      if (inner != outer) moved = true;
    });
  });
  EXPECT_EQ(sum.load(), 40);
  EXPECT_FALSE(moved);
}

TEST(ThreadPool, ASingleTaskIsTheCallers) {
  ThreadPool pool(3);
  const auto caller = std::this_thread::get_id();
  for (int round = 0; round < 100; ++round) {
    pool.parallel_for(1, [&](int64_t, int thread) {
      EXPECT_EQ(thread, 0);
      EXPECT_EQ(std::this_thread::get_id(), caller);
      int inside = 0;
      pool.parallel_for(3, [&](int64_t, int) { ++inside; });
      EXPECT_EQ(inside, 3);
    });
    EXPECT_THROW(pool.parallel_for(1, [](int64_t, int) { throw std::runtime_error("the task"); }), std::runtime_error);
    std::atomic<int> after{0};
    pool.parallel_for(10, [&](int64_t, int) { ++after; });
    EXPECT_EQ(after.load(), 10);
  }
}

TEST(ThreadPool, SeveralCallers) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  int single = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i)
    callers.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        pool.parallel_for(10, [&](int64_t task, int) { sum += task; });
        pool.parallel_for(1, [&](int64_t, int) {  // nobody else's in the meantime
          const int before = single;
          std::this_thread::yield();
          single = before + 1;
        });
      }
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(sum.load(), 3 * 100 * 45);
  EXPECT_EQ(single, 3 * 100);
}

// Stacks need address space: with little of it the system grants some threads and refuses the rest.
TEST(ThreadPool, MakesDoWithTheThreadsThatTheSystemGives) {
  if (sanitized()) GTEST_SKIP() << "a sanitizer needs more address space";
  const pid_t child = fork();
  if (child == 0) {
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t space = static_cast<rlim_t>(pages) * 4096 + (rlim_t{60} << 20);
    const rlimit limit{space, space};
    setrlimit(RLIMIT_AS, &limit);
    spdlog::set_level(spdlog::level::off);
    int64_t sum = 0;
    {
      ThreadPool pool(64);
      if (pool.threads() < 2 || pool.threads() >= 64) _exit(2);
      std::atomic<int64_t> all{0};
      pool.parallel_for(1000, [&](int64_t task, int) { all += task; });
      sum = all;
    }
    _exit(sum == 999 * 500 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(ThreadPool, RefusesAbsurdCounts) {
  EXPECT_THROW(ThreadPool(0), Error);
  EXPECT_THROW(ThreadPool(-2), Error);
  EXPECT_THROW(ThreadPool(100000), Error);
}

}  // namespace
}  // namespace tenon::cpu
