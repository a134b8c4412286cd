// What the planner knows of the backend that a plan is for.
#pragma once
#include <functional>

#include "tenon/kernels/form.h"

namespace tenon {

struct Target {
  /// Whether a kernel of the form's anchor computes what fills this hole while it reads it. Where not, the hole's value
  /// is stored before the anchor, but for the views on top of it. Empty: always.
  std::function<bool(const Form& form, size_t hole)> reads = {};
  /// What a launch costs whatever it does, as the bytes that the device moves in that time.
  int64_t launch_bytes = 65536;
};

}  // namespace tenon
