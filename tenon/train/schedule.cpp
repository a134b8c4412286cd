#include "tenon/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tenon/core/error.h"

namespace tenon::train {

double Schedule::rate(int64_t number) const {
  if (number < warm_up) return peak * static_cast<double>(number) / static_cast<double>(warm_up);
  if (decay == Decay::Constant) return peak;
  const double length = static_cast<double>(std::max<int64_t>(steps - warm_up, 1));
  const double done = std::clamp(static_cast<double>(number - 1 - warm_up) / length, 0.0, 1.0);
  const double left = decay == Decay::Linear ? 1 - done : (1 + std::cos(std::numbers::pi * done)) / 2;
  return peak * (least + (1 - least) * left);
}

Decay decay_of(const std::string& name) {
  if (name == "constant") return Decay::Constant;
  if (name == "linear") return Decay::Linear;
  if (name == "cosine") return Decay::Cosine;
  throw Error(ErrorKind::Usage, "schedule", "unknown schedule '" + name + "'; expected constant, linear or cosine");
}

std::vector<std::string> decay_names() { return {"constant", "linear", "cosine"}; }

void check_schedule(const Schedule& s) {
  TENON_CHECK(Usage, s.peak >= 0 && std::isfinite(s.peak), "learning rate")
      << s.peak << ": expected a number of at least 0";
  TENON_CHECK(Usage, s.warm_up >= 0, "warm-up") << s.warm_up << " steps: expected 0 or more";
  TENON_CHECK(Usage, s.least >= 0 && s.least <= 1, "schedule")
      << "ends at " << s.least << " of the peak: expected 0 to 1";
  TENON_CHECK(Usage, s.decay == Decay::Constant || s.steps > 0, "schedule")
      << "decays over " << s.steps << " steps: expected 1 or more";
}

}  // namespace tenon::train
