// Signals while the engine is running: Ctrl-C ends a call before its next launch.
#pragma once
#include <chrono>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include "apps/python/nb.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"

namespace tenon::python {

/// For one call: concurrent calls, even on one object, do not see each other's signals.
class Interrupt {
 public:
  /// Returns the result of `work`, computed without the GIL. Once a signal's handler has raised an exception the work
  /// is asked to stop; that exception is then thrown, even if the work completed. `check`, if not None, is called as
  /// often as signals are looked at, and may raise one too.
  template <class Work>
  static auto run(Work&& work, const nb::object& check = nb::none()) {
    Interrupt call(check);
    try {
      const nb::gil_scoped_release released;
      const StopScope until_a_signal([&call] { return call.pending(); });
      if constexpr (std::is_void_v<decltype(work())>) {
        work();
        if (!call.raised_) return;
      } else {
        auto result = work();
        if (!call.raised_) return result;
      }
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Cancelled || !call.raised_) throw;
    }
    throw nb::python_error(*std::move(call.raised_));
  }

 private:
  explicit Interrupt(const nb::object& check) : check_(check) {}

  // Called without the GIL; asks Python at most every 20 ms, because that needs the GIL.
  bool pending() {
    const auto now = std::chrono::steady_clock::now();
    if (raised_ || now - asked_ < std::chrono::milliseconds(20)) return raised_.has_value();
    asked_ = now;
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) {
      raised_.emplace();
    } else if (!check_.is_none()) {
      try {
        check_();
      } catch (const nb::python_error& e) {
        raised_.emplace(e);
      }
    }
    return raised_.has_value();
  }

  const nb::object& check_;
  std::optional<nb::python_error> raised_;
  std::chrono::steady_clock::time_point asked_{};
};

/// A lock on an object, held by one call at a time; waiting for it still responds to signals.
class Turns {
 public:
  std::unique_lock<std::timed_mutex> wait() {
    std::unique_lock<std::timed_mutex> turn(busy_, std::defer_lock);
    while (!turn.try_lock_for(std::chrono::milliseconds(20))) check_stop("pipeline");
    return turn;
  }

 private:
  std::timed_mutex busy_;
};

}  // namespace tenon::python
