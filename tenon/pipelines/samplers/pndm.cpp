// PNDM (Liu et al. 2022): linear multistep (PLMS) over the noise estimates, started either by one repeated call
// (skip_prk_steps, as Stable Diffusion) or by Runge-Kutta steps of four calls each.
//
// Image to image follows diffusers exactly: it cuts the list after the repeated timestep but still treats its second
// call as the repeated one, so from the third call on the model is called one timestep ahead of the sample.
#include <algorithm>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/pipelines/samplers/noise_schedule.h"
#include "tenon/pipelines/samplers/registry.h"

namespace tenon {
namespace {

constexpr ScheduleDefaults kPndmDefaults{.spacing = "leading", .zero_snr_key = false};
constexpr int kOrder = 4;
constexpr int kRungeKuttaCalls = 12;

class Pndm : public Sampler {
 public:
  explicit Pndm(const Settings& settings) : schedule_(settings, kPndmDefaults) {
    TENON_CHECK(Model, schedule_.prediction() != Prediction::Sample, settings.where("prediction_type"))
        << "'sample' is not defined for PNDM";
    skip_prk_ = settings.flag("skip_prk_steps", false);
    final_product_ = settings.flag("set_alpha_to_one", false) ? 1.0 : schedule_.product(0);
  }

 protected:
  std::vector<double> lay_out(int steps) override {
    stride_ = schedule_.train_steps() / steps;
    history_.clear();
    std::vector<double> times = schedule_.whole_timesteps(steps);
    if (!skip_prk_)
      times = with_runge_kutta(times);
    else if (steps > 1)
      times.insert(times.begin() + 1, times[1]);
    for (const double t : times) schedule_.product(std::lround(t));  // throws if t is outside the schedule
    return times;
  }

  void advance(std::span<const float> output, int index, int call, std::span<float> sample,
               const NoiseSource&) override {
    if (!skip_prk_ && call < kRungeKuttaCalls)
      runge_kutta(output, call, sample);
    else
      multistep(output, index, call, sample);
  }

  NoiseLevel level(int index) const override {
    const double a = schedule_.product(std::lround(timestep(index)));
    return {std::sqrt(a), std::sqrt(1 - a)};
  }
  int max_steps() const override { return schedule_.train_steps(); }
  bool can_start_late() const override { return skip_prk_; }

 private:
  // The four noisiest steps and their midpoints, each inner one twice, before the rest.
  std::vector<double> with_runge_kutta(const std::vector<double>& times) const {
    TENON_CHECK(Usage, times.size() >= kOrder, "steps") << "PNDM with Runge-Kutta steps needs at least " << kOrder;
    std::vector<double> points;
    for (int k = 0; k < kOrder; ++k) {
      points.push_back(times[static_cast<size_t>(k)] + stride_ / 2);
      points.push_back(times[static_cast<size_t>(k)]);
    }
    std::vector<double> out = {points[1]};
    for (int k = 2; k < 2 * kOrder - 1; ++k) out.insert(out.end(), 2, points[static_cast<size_t>(k)]);
    out.push_back(points.back());
    out.insert(out.end(), times.begin() + kOrder - 1, times.end());
    return out;
  }

  void runge_kutta(std::span<const float> output, int call, std::span<float> sample) {
    const int stage = call % 4;
    const int64_t from = std::lround(timestep(call - stage));
    const int64_t to = std::lround(timestep(call)) - (call % 2 ? 0 : stride_ / 2);
    std::vector<double> e(output.begin(), output.end());
    if (stage == 0) {
      remember(output);
      start_.assign(sample.begin(), sample.end());
      sum_.assign(sample.size(), 0.0);
    }
    for (size_t i = 0; i < e.size(); ++i) sum_[i] += e[i] / (stage == 0 || stage == 3 ? 6 : 3);
    transfer(start_, from, to, stage == 3 ? sum_ : e, sample);
  }

  void multistep(std::span<const float> output, int index, int call, std::span<float> sample) {
    int64_t from = std::lround(timestep(index)), to = from - stride_;
    // The repeated call corrects the first step: it starts again from the first sample with the mean of both outputs.
    const bool repeated = skip_prk_ && call == 1;
    if (repeated) {
      to = from;
      from += stride_;
    } else {
      remember(output);
      start_.assign(sample.begin(), sample.end());
    }
    std::vector<double> e(sample.size());
    for (size_t i = 0; i < e.size(); ++i) e[i] = repeated ? (output[i] + past(0, i)) / 2 : extrapolated(i);
    transfer(start_, from, to, e, sample);
  }

  void remember(std::span<const float> output) {
    history_.insert(history_.begin(), std::vector<float>(output.begin(), output.end()));
    if (history_.size() > kOrder) history_.pop_back();
  }
  double past(size_t age, size_t i) const { return history_[age][i]; }

  // Adams-Bashforth of the highest order that the history allows.
  double extrapolated(size_t i) const {
    switch (history_.size()) {
      case 1:
        return past(0, i);
      case 2:
        return (3 * past(0, i) - past(1, i)) / 2;
      case 3:
        return (23 * past(0, i) - 16 * past(1, i) + 5 * past(2, i)) / 12;
      default:
        return (55 * past(0, i) - 59 * past(1, i) + 37 * past(2, i) - 9 * past(3, i)) / 24;
    }
  }

  // Eq. 11: transfers sample `x` from timestep `from` to timestep `to`, given the (combined) model output.
  void transfer(const std::vector<float>& x, int64_t from, int64_t to, const std::vector<double>& output,
                std::span<float> out) const {
    const double a = schedule_.product(from), b = to >= 0 ? schedule_.product(to) : final_product_;
    const double keep = std::sqrt(b / a);
    const double gain = (b - a) / (a * std::sqrt(1 - b) + std::sqrt(a * (1 - a) * b));
    const NoiseLevel here{std::sqrt(a), std::sqrt(1 - a)};
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(keep * x[i] - gain * estimate(schedule_.prediction(), output[i], x[i], here).eps);
  }

  NoiseSchedule schedule_;
  bool skip_prk_ = false;
  double final_product_ = 1;
  int stride_ = 1;
  std::vector<std::vector<float>> history_;  // raw outputs, newest first
  std::vector<float> start_;                 // the sample that the current step (or its four calls) starts from
  std::vector<double> sum_;                  // weighted Runge-Kutta outputs so far
};

const RegisterSampler kRegisteredPndm({.name = "pndm",
                                       .a1111_name = "PLMS",
                                       .aliases = {},
                                       .diffusers_class = "PNDMScheduler",
                                       .make = [](const Settings& config, const SamplerOptions&) {
                                         return std::make_unique<Pndm>(config);
                                       }});

}  // namespace
}  // namespace tenon
