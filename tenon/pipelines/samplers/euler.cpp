// Euler's method: on the probability-flow equation in sigma (Karras et al. 2022, algorithm 2 without churn), and on the
// straight paths of flow matching.
#include "tenon/core/error.h"
#include "tenon/pipelines/samplers/registry.h"
#include "tenon/pipelines/samplers/sigma_schedule.h"

namespace tenon {
namespace {

class Euler : public EulerFamily {
 public:
  Euler(const Settings& settings, bool karras) : EulerFamily(settings, karras, true) {
    settings.refuse({"use_exponential_sigmas", "use_beta_sigmas"});
    settings.choice("interpolation_type", "linear", {"linear"});
    settings.choice("timestep_type", "discrete", {"discrete"});
  }

 protected:
  void advance(std::span<const float> output, int index, int, std::span<float> sample, const NoiseSource&) override {
    const double from = sigma(index), to = sigma(index + 1);
    for (size_t i = 0; i < sample.size(); ++i)
      sample[i] = static_cast<float>(sample[i] + (to - from) * derivative(output[i], sample[i], from));
  }
};

// diffusers' FlowMatchEulerDiscreteScheduler with sigmas 1, 1 - 1/n, .. 1/n before the shift, as the pipelines of
// flow-matching models give it: n steps are n calls, and the last one ends at 0.
class FlowMatchEuler : public Sampler {
 public:
  explicit FlowMatchEuler(const Settings& settings)
      : train_steps_(settings.integer("num_train_timesteps", 1000, 1, 100000)),
        shift_(settings.number("shift", 1, 1e-3, 1e3)) {
    settings.refuse({"use_dynamic_shifting", "invert_sigmas", "use_karras_sigmas", "use_exponential_sigmas",
                     "use_beta_sigmas", "stochastic_sampling"});
    settings.number("shift_terminal", 0, 0, 0);
  }

 protected:
  std::vector<double> lay_out(int steps) override {
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
  void advance(std::span<const float> output, int index, int, std::span<float> sample, const NoiseSource&) override {
    const double change = sigma(index + 1) - sigma(index);
    for (size_t i = 0; i < sample.size(); ++i) sample[i] = static_cast<float>(sample[i] + change * output[i]);
  }
  NoiseLevel level(int index) const override { return {1 - sigma(index), sigma(index)}; }
  int max_steps() const override { return train_steps_; }

 private:
  double sigma(int index) const { return sigmas_[static_cast<size_t>(index)]; }

  int train_steps_;
  double shift_;
  std::vector<double> sigmas_;
};

std::unique_ptr<Sampler> make_euler(const Settings& config, const SamplerOptions& options) {
  if (!is_flow_matching(config)) return std::make_unique<Euler>(config, *options.karras);
  TENON_CHECK(Usage, !*options.karras, "euler") << "takes no Karras noise levels in flow matching";
  return std::make_unique<FlowMatchEuler>(config);
}

const RegisterSampler kRegisteredEuler({.name = "euler",
                                        .a1111_name = "Euler",
                                        .aliases = {"FlowMatchEulerDiscreteScheduler"},
                                        .diffusers_class = "EulerDiscreteScheduler",
                                        .karras = KarrasLevels::IfConfigured,
                                        .flow_matching = true,
                                        .make = make_euler});

}  // namespace
}  // namespace tenon
