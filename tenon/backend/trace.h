// What a device did and when, by its own clock.
#pragma once
#include <vector>

namespace tenon {

/// A kernel, fill or copy that a device ran; times in seconds of the device's clock.
struct DeviceWork {
  bool copy = false;
  double begin = 0, end = 0;
};

/// Traces a device's work, also inside a Replay, for as long as it lives.
class Trace {
 public:
  virtual ~Trace() = default;
  /// All work since the last call, sorted by start. The caller must have waited for the work it is interested in.
  virtual std::vector<DeviceWork> take() = 0;
};

}  // namespace tenon
