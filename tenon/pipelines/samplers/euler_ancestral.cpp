// Euler ancestral: a longer Euler step, then fresh noise back up to the next level (k-diffusion, Katherine Crowson).
#include <algorithm>
#include <cmath>

#include "tenon/pipelines/samplers/registry.h"
#include "tenon/pipelines/samplers/sigma_schedule.h"

namespace tenon {
namespace {

class EulerAncestral : public EulerFamily {
 public:
  EulerAncestral(const Settings& settings, bool karras, double eta) : EulerFamily(settings, karras), eta_(eta) {}

  bool needs_noise() const override { return true; }

 protected:
  void advance(std::span<const float> output, int index, int, std::span<float> sample,
               const NoiseSource& noise) override {
    const double from = sigma(index), to = sigma(index + 1);
    // Taking the square root of a plain difference of squares would lose the small levels at the end of the schedule.
    const double up = std::min(to, eta_ * to / from * std::sqrt(std::max(0.0, (from - to) * (from + to))));
    const double down = std::sqrt(std::max(0.0, (to - up) * (to + up)));
    noise_.resize(sample.size());
    noise(noise_);
    for (size_t i = 0; i < sample.size(); ++i)
      sample[i] =
          static_cast<float>(sample[i] + (down - from) * derivative(output[i], sample[i], from) + up * noise_[i]);
  }

 private:
  double eta_;
  std::vector<float> noise_;
};

const RegisterSampler kRegisteredEulerAncestral({.name = "euler_a",
                                                 .a1111_name = "Euler a",
                                                 .aliases = {"euler_ancestral"},
                                                 .diffusers_class = "EulerAncestralDiscreteScheduler",
                                                 .default_eta = 1,
                                                 .karras = KarrasLevels::IfAsked,
                                                 .make = [](const Settings& config, const SamplerOptions& options) {
                                                   return std::make_unique<EulerAncestral>(config, *options.karras,
                                                                                           *options.eta);
                                                 }});

}  // namespace
}  // namespace tenon
