// Runs two pieces of work at the same time.
#pragma once
#include <future>
#include <system_error>

namespace tenon {

/// Runs both and returns when both are done: `other` on its own thread, or after `here` if the system provides no
/// thread. Rethrows what either throws.
template <class Here, class Other>
void run_beside(const Here& here, const Other& other) {
  std::future<void> done;
  try {
    done = std::async(std::launch::async, [&other] { other(); });
  } catch (const std::system_error&) {
    done = std::async(std::launch::deferred, [&other] { other(); });
  }
  here();  // if it throws, the future's destructor waits
  done.get();
}

}  // namespace tenon
