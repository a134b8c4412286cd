// Signals while the engine is running: Ctrl-C ends a call before its next launch.
#pragma once
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "apps/python/gil.h"
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
      const GilReleased released;
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
    const GilTaken gil;
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
  /// Ends with this object.
  class Turn {
   public:
    explicit Turn(Turns& turns) : turns_(turns) { turns_.take(); }
    ~Turn() { turns_.leave(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Turns& turns_;
  };
  /// Error(Device) in a forked child if a thread of the parent, which the child does not have, held the turn.
  Turn wait() { return Turn(*this); }
  /// Whether this thread has the turn.
  bool mine() const { return process_ == getpid() && thread_ == std::this_thread::get_id(); }

 private:
  void take() {
    // Twice, because a thread of this process may have the turn and not yet have said so.
    for (int strange = 0; !busy_.try_lock_for(std::chrono::milliseconds(20));) {
      check_stop("pipeline");
      strange = process_ == getpid() ? 0 : strange + 1;
      TENON_CHECK(Device, strange < 2, "pipeline")
          << "expected one that nothing used when this process was forked, got one that process " << process_
          << " was using: open it again in this process";
    }
    process_ = getpid();
    thread_ = std::this_thread::get_id();
  }
  void leave() {
    thread_ = std::thread::id();
    busy_.unlock();
  }

  std::timed_mutex busy_;
  std::atomic<pid_t> process_{getpid()};   // whose thread had the last turn
  std::atomic<std::thread::id> thread_{};  // that has the turn
};

}  // namespace tenon::python
