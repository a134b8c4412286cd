// Where a step's time went: every launch of a running network, by class and by layer, and the time outside launches.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/trace.h"
#include "tenon/explain/explanation.h"

namespace tenon {

/// A part of a step's time: a launch, a copy or (in totals) idle time.
struct ProfiledTime {
  std::string name, kind;     ///< kind: "product", "convolution", "attention", "row", "map", "copy", "idle"
  std::string layer;          ///< "layers.15": the name up to its number; the last one seen, without one or of a state
  double begin = 0, end = 0;  ///< seconds from the beginning of the step
  /// Its share of the step, counted from the end of everything before it: shares never overlap and, with idle time, add
  /// up to the step.
  double seconds = 0;
  int launches = 0, kernels = 0;
  std::optional<double> roofline = {};  ///< share of the device's peak (roofline_share), of the launches that have one
  std::string how = {};
};

struct Profile {
  std::string model, part, device;
  double seconds = 0;                    ///< of the step: from the start of the first launch to the end of the last
  int runs = 0;                          ///< the step is the median of this many
  std::vector<ProfiledTime> times = {};  ///< launches and copies, in order
  /// Sums, largest first; the seconds of either list add up to those of the step.
  std::vector<ProfiledTime> classes = {}, layers = {};
  std::optional<Roofline> roofline = {};  ///< of the device, if measured
};

/// One run of a phase: what ran and when, by any clock. launches[i] is launch i of the phase, its kernels combined.
struct MeasuredStep {
  std::vector<DeviceWork> launches, copies;
};

/// Groups what a traced device did in one run of the phase by launch; a launch's kernels are consecutive. Throws
/// Error(Numeric) if there are more or fewer kernels than PlanKernels counts.
MeasuredStep step_of(std::span<const DeviceWork> work, const Explanation& e);

/// Profiles the most frequent phase of `e` from its `runs`; shows the run with the median time.
Profile make_profile(const Explanation& e, std::vector<MeasuredStep> runs);

/// Tables by class, by layer, and of the `longest` launches.
std::string profile_text(const Profile& p, size_t longest);

}  // namespace tenon
