// What a device did and when, by its own clock.
#pragma once
#include <vector>

namespace tenon {

/// A kernel, fill or copy that a device ran: seconds of its own clock.
struct DeviceWork {
  bool copy = false;
  double begin = 0, end = 0;
};

/// Notes what a device does, also inside a Replay, for as long as it lives.
class Trace {
 public:
  virtual ~Trace() = default;
  /// All since the last call, by when it began. The caller has waited for what it is interested in.
  virtual std::vector<DeviceWork> take() = 0;
};

}  // namespace tenon
