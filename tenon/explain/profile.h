// Where a step's time went: every launch of a running network, by class and by layer, with the rest that no launch
// took.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/trace.h"
#include "tenon/explain/explanation.h"

namespace tenon {

/// A part of a step's time: a launch's, a copy's or (in totals) what nothing ran in.
struct ProfiledTime {
  std::string name, kind;     ///< kind: "product", "convolution", "attention", "row", "map", "copy", "idle"
  std::string layer;          ///< "layers.15": the name up to its number; a launch without one is its forerunner's
  double begin = 0, end = 0;  ///< seconds from the step's beginning
  /// Its part of the step: from where everything before it had ended, so that parts never overlap and, with the idle
  /// time, add up to the step.
  double seconds = 0;
  int launches = 0, kernels = 0;
  std::optional<double> roofline = {};  ///< share of the device's peak (roofline_share), over `seconds`
  std::string how = {};
};

struct Profile {
  std::string model, part, device;
  double seconds = 0;                    ///< of the step: from the first launch's beginning to the last one's end
  int runs = 0;                          ///< of which it is the median
  std::vector<ProfiledTime> times = {};  ///< launches and copies in order
  /// Sums, the largest first; the seconds of either list add up to the step's.
  std::vector<ProfiledTime> classes = {}, layers = {};
  std::optional<Roofline> roofline = {};  ///< of the device, where it was measured
};

/// One run of a phase: what it ran and when, in any clock. launches[i] is launch i of the phase, several kernels
/// as one.
struct MeasuredStep {
  std::vector<DeviceWork> launches, copies;
};

/// What a traced device did in one run of the phase, put together to its launches, whose kernels follow one another.
/// Error(Numeric) if there are more or fewer kernels than PlanKernels counts.
MeasuredStep step_of(std::span<const DeviceWork> work, const Explanation& e);

/// The phase of `e` that runs most often, of whose runs these are; the median of them by time is shown.
Profile make_profile(const Explanation& e, std::vector<MeasuredStep> runs);

/// Tables by class, by layer and of the `longest` launches.
std::string profile_text(const Profile& p, size_t longest);

}  // namespace tenon
