#include "tenon/pipelines/samplers/flow_schedule.h"

#include <algorithm>

#include "tenon/core/error.h"

namespace tenon {

FlowSampler::FlowSampler(const Settings& settings, const SamplerOptions& options)
    : train_steps_(settings.integer("num_train_timesteps", 1000, 1, 100000)),
      shift_(options.flow_shift.value_or(settings.number("shift", 1, 1e-3, 1e3))) {
  settings.refuse({"use_dynamic_shifting", "invert_sigmas", "use_karras_sigmas", "use_exponential_sigmas",
                   "use_beta_sigmas", "stochastic_sampling"});
  TENON_CHECK(Model, settings.number("shift_terminal", 0, 0, 1) == 0, settings.where("shift_terminal"))
      << "is set, but this is not implemented";
  TENON_CHECK(Usage, !options.karras.value_or(false), "sampler")
      << "Karras noise levels are not supported with flow matching";
}

std::vector<double> FlowSampler::lay_out(int steps) {
  std::vector<double> times;
  sigmas_.clear();
  for (int i = 0; i < steps; ++i) {
    const double s = 1 - static_cast<double>(i) / steps;
    sigmas_.push_back(static_cast<double>(static_cast<float>(shift_ * s / (1 + (shift_ - 1) * s))));
    times.push_back(sigmas_.back() * train_steps_);
  }
  sigmas_.push_back(0);
  return times;
}

int FlowSampler::kept_steps(int steps, double strength) const {
  return steps - static_cast<int>(steps - std::min(steps * strength, static_cast<double>(steps)));
}

}  // namespace tenon
