// Medians of repeated calls.
#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "tenon/core/stop.h"

namespace tenon::cli {

/// Median time in milliseconds of repeated calls after an uncounted one: at least 3, more while they fit into 60 ms.
inline double median_ms(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  constexpr double kBudget = 60;
  constexpr size_t kLeast = 3, kMost = 25;
  call();
  std::vector<double> times;
  double spent = 0;
  while (times.size() < kLeast || (spent < kBudget && times.size() < kMost)) {
    check_stop();
    const auto begin = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    spent += times.back();
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

/// Milliseconds of one of `calls`, the median over turns that make each once and then `wait` for what they enqueued.
/// All are made three times beforehand: their first run touches new memory, and a device records the second.
inline double median_of_turns(const std::vector<std::function<void()>>& calls, const std::function<void()>& wait) {
  const auto turn = [&] {
    for (const auto& call : calls) {
      check_stop();
      call();
    }
    wait();
  };
  turn();
  turn();
  return median_ms(turn) / static_cast<double>(calls.size());
}

}  // namespace tenon::cli
