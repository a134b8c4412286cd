// DDIM (Song et al. 2020, eq. 12): from t to t - train/N through the clean sample, with an amount `eta` of fresh noise.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tenon/core/error.h"
#include "tenon/pipelines/samplers/noise_schedule.h"
#include "tenon/pipelines/samplers/registry.h"

namespace tenon {
namespace {

class Ddim : public Sampler {
 public:
  Ddim(const Settings& settings, double eta) : schedule_(settings, {}), eta_(eta) {
    settings.refuse({"thresholding"});
    const double range = settings.number("clip_sample_range", 1.0, 0, 1e6);
    clip_ = settings.flag("clip_sample", true) ? range : std::numeric_limits<double>::infinity();
    final_product_ = settings.flag("set_alpha_to_one", true) ? 1.0 : schedule_.product(0);
  }

  bool needs_noise() const override { return eta_ > 0; }

 protected:
  std::vector<double> lay_out(int steps) override {
    stride_ = schedule_.train_steps() / steps;
    std::vector<double> times = schedule_.whole_timesteps(steps);
    for (const double t : times)
      TENON_CHECK(Model, schedule_.product(std::lround(t)) > 0 || schedule_.prediction() != Prediction::Epsilon, "ddim")
          << "timestep " << t << " has no signal (zero terminal SNR), which a noise-predicting model cannot start from";
    return times;
  }

  void advance(std::span<const float> output, int index, int, std::span<float> sample,
               const NoiseSource& noise) override {
    const int64_t t = std::lround(timestep(index)), p = t - stride_;
    const double a = schedule_.product(t), b = p >= 0 ? schedule_.product(p) : final_product_;
    const double fresh = eta_ * std::sqrt(std::max(0.0, (1 - b) / (1 - a) * (1 - a / b)));
    const double along = std::sqrt(std::max(0.0, 1 - b - fresh * fresh));
    if (needs_noise()) {
      noise_.resize(sample.size());
      noise(noise_);
    }
    for (size_t i = 0; i < sample.size(); ++i) {
      const Estimate e = estimate(schedule_.prediction(), output[i], sample[i], level(index));
      double x = std::sqrt(b) * std::clamp(e.x0, -clip_, clip_) + along * e.eps;
      if (needs_noise()) x += fresh * noise_[i];
      sample[i] = static_cast<float>(x);
    }
  }

  NoiseLevel level(int index) const override {
    const double a = schedule_.product(std::lround(timestep(index)));
    return {std::sqrt(a), std::sqrt(1 - a)};
  }
  int max_steps() const override { return schedule_.train_steps(); }

 private:
  NoiseSchedule schedule_;
  double eta_, clip_, final_product_;
  int stride_ = 1;
  std::vector<float> noise_;
};

const RegisterSampler kRegisteredDdim({.name = "ddim",
                                       .a1111_name = "DDIM",
                                       .aliases = {},
                                       .diffusers_class = "DDIMScheduler",
                                       .default_eta = 0,
                                       .make = [](const Settings& config, const SamplerOptions& options) {
                                         return std::make_unique<Ddim>(config, *options.eta);
                                       }});

}  // namespace
}  // namespace tenon
