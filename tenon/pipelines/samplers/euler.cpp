// Euler's method: on the probability-flow equation in sigma (Karras et al. 2022, algorithm 2 without churn), and on the
// straight paths of flow matching.
#include "tenon/pipelines/samplers/flow_schedule.h"
#include "tenon/pipelines/samplers/registry.h"
#include "tenon/pipelines/samplers/sigma_schedule.h"

namespace tenon {
namespace {

class Euler : public EulerFamily {
 public:
  Euler(const Settings& settings, bool karras) : EulerFamily(settings, karras) {
    set_last_sigma(final_sigma(settings, schedule()));
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

class FlowMatchEuler : public FlowSampler {
 public:
  using FlowSampler::FlowSampler;

 protected:
  void advance(std::span<const float> output, int index, int, std::span<float> sample, const NoiseSource&) override {
    const double change = sigma(index + 1) - sigma(index);
    for (size_t i = 0; i < sample.size(); ++i) sample[i] = static_cast<float>(sample[i] + change * output[i]);
  }
};

std::unique_ptr<Sampler> make_euler(const Settings& config, const SamplerOptions& options) {
  if (is_flow_matching(config)) return std::make_unique<FlowMatchEuler>(config, options);
  return std::make_unique<Euler>(config, *options.karras);
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
