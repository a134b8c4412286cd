// The second-order method of Adams and Bashforth: each step takes the slope that a line through the last two slopes has
// in its middle. The first step is Euler's.
#include "tenon/pipelines/samplers/registry.h"
#include "tenon/pipelines/samplers/sigma_schedule.h"

namespace tenon {
namespace {

class AdamsBashforth : public EulerFamily {
 public:
  AdamsBashforth(const Settings& settings, bool karras) : EulerFamily(settings, karras) {}

 protected:
  std::vector<double> lay_out(int steps) override {
    last_.clear();
    return EulerFamily::lay_out(steps);
  }
  void advance(std::span<const float> output, int index, int, std::span<float> sample, const NoiseSource&) override {
    const double from = sigma(index), step = sigma(index + 1) - from;
    const double reach = last_.empty() ? 0 : step / 2 / (from - sigma(index - 1));  // in steps like the last one
    std::vector<double> slopes(sample.size());
    for (size_t i = 0; i < sample.size(); ++i) {
      slopes[i] = derivative(output[i], sample[i], from);
      const double change = last_.empty() ? 0 : slopes[i] - last_[i];
      sample[i] = static_cast<float>(sample[i] + step * (slopes[i] + reach * change));
    }
    last_ = std::move(slopes);
  }

 private:
  std::vector<double> last_;  // slopes of the call before
};

std::unique_ptr<Sampler> make_adams_bashforth(const Settings& config, const SamplerOptions& options) {
  return std::make_unique<AdamsBashforth>(config, *options.karras);
}

const RegisterSampler kRegisteredAdamsBashforth({.name = "ab2",
                                                 .a1111_name = "Adams-Bashforth",
                                                 .aliases = {},
                                                 .diffusers_class = "AdamsBashforthScheduler",
                                                 .karras = KarrasLevels::IfAsked,
                                                 .make = make_adams_bashforth});

}  // namespace
}  // namespace tenon
