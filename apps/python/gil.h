// The GIL, released and taken such that a thread which wants it after Python has ended sleeps instead. CPython before
// 3.14 would end the thread, which aborts the process where C++ is on the thread's stack.
#pragma once
#include "apps/python/nb.h"

namespace tenon::python {

/// While it exists, Python's end waits for it (at most two seconds). Its constructor never returns after that end.
class NeedsPython {
 public:
  NeedsPython();
  ~NeedsPython();
  NeedsPython(const NeedsPython&) = delete;
  NeedsPython& operator=(const NeedsPython&) = delete;
};

/// Releases the GIL in its scope.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() {
    const NeedsPython needs;
    PyEval_RestoreThread(state_);
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

/// Takes the GIL in its scope.
class GilTaken {
  const NeedsPython needs_;
  const nb::gil_scoped_acquire gil_;
};

}  // namespace tenon::python
