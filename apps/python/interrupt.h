// Signals while the engine is at work: Ctrl-C ends it before its next launch.
#pragma once
#include <chrono>
#include <optional>
#include <utility>

#include "nb.h"
#include "tenon/core/error.h"

namespace tenon::python {

/// Lives as long as the work that asks it.
class Interrupt {
 public:
  /// True once a signal's handler has raised an exception. Called without the GIL; asks Python at most every 20 ms,
  /// because that takes the GIL.
  bool pending() {
    const auto now = std::chrono::steady_clock::now();
    if (raised_ || now - asked_ < std::chrono::milliseconds(20)) return raised_.has_value();
    asked_ = now;
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) raised_.emplace();
    return raised_.has_value();
  }

  /// What `work` returns, computed without the GIL. Work that ended because `pending` said so becomes the exception of
  /// the signal's handler.
  template <class Work>
  auto run(Work&& work) {
    try {
      const nb::gil_scoped_release released;
      return work();
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Cancelled || !raised_) throw;
    }
    throw nb::python_error(std::exchange(raised_, std::nullopt).value());
  }

 private:
  std::optional<nb::python_error> raised_;
  std::chrono::steady_clock::time_point asked_{};
};

}  // namespace tenon::python
