// Two pieces of work at the same time.
#pragma once
#include <future>
#include <system_error>

namespace tenon {

/// Runs both and returns when both are done: `other` on a thread of its own, or behind `here` where the system gives
/// none. What either throws is thrown.
template <class Here, class Other>
void run_beside(const Here& here, const Other& other) {
  std::future<void> done;
  try {
    done = std::async(std::launch::async, [&other] { other(); });
  } catch (const std::system_error&) {
    done = std::async(std::launch::deferred, [&other] { other(); });
  }
  here();  // if it throws, the future's end waits
  done.get();
}

}  // namespace tenon
