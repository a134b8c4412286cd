// DPM-Solver++ (2M), data prediction, midpoint form (Lu et al. 2022b, algorithm 2): each step extrapolates the clean
// sample from this call's and the previous one's. Also for flow matching, where log-SNR is log((1 - sigma) / sigma).
#include <algorithm>
#include <cmath>
#include <limits>

#include "tenon/core/error.h"
#include "tenon/pipelines/samplers/flow_schedule.h"
#include "tenon/pipelines/samplers/registry.h"
#include "tenon/pipelines/samplers/sigma_schedule.h"

namespace tenon {
namespace {

constexpr ScheduleDefaults kDefaults{.spacing = "linspace", .zero_snr_key = true, .nudge_zero = true};
constexpr int kFewSteps = 15;  // below this, lower_order_final makes the last step first-order

class DpmSolver2M : public Sampler {
 public:
  DpmSolver2M(const Settings& settings, bool karras)
      : schedule_(settings, kDefaults), karras_(karras), last_sigma_(final_sigma(settings, schedule_)) {
    settings.refuse({"thresholding", "use_exponential_sigmas", "use_beta_sigmas", "use_lu_lambdas", "use_flow_sigmas"});
    settings.choice("algorithm_type", "dpmsolver++", {"dpmsolver++", "deis"});
    // Sibling classes' solver types mean midpoint here, as in diffusers.
    settings.choice("solver_type", "midpoint", {"midpoint", "logrho", "bh1", "bh2"});
    order_ = settings.integer("solver_order", 2, 1, 2);
    lower_order_final_ = settings.flag("lower_order_final", true);
    euler_at_final_ = settings.flag("euler_at_final", false);
    check_unclipped(settings);
  }

 protected:
  std::vector<double> lay_out(int steps) override {
    const std::vector<double> table = schedule_.sigmas();
    std::vector<double> times;
    if (karras_) {
      sigmas_ = karras_sigmas(table.back(), table.front(), steps);
      for (const double s : sigmas_) times.push_back(std::nearbyint(timestep_of(table, s)));
    } else {
      times = spaced(steps);
      sigmas_.clear();
      for (const double t : times) sigmas_.push_back(interpolate(table, t));
    }
    for (double& s : sigmas_) s = static_cast<double>(static_cast<float>(s));
    for (size_t i = 1; i < sigmas_.size(); ++i)
      TENON_CHECK(Usage, sigmas_[i] < sigmas_[i - 1], "steps")
          << "with this spacing, " << steps << " steps put two steps on the same noise level";
    sigmas_.push_back(last_sigma_);
    clean_before_.clear();
    return times;
  }

  void advance(std::span<const float> output, int index, int call, std::span<float> sample,
               const NoiseSource&) override {
    const NoiseLevel here = level(index), next = level(index + 1);
    const double from = sigmas_[static_cast<size_t>(index)], to = sigmas_[static_cast<size_t>(index) + 1];
    const bool first_order = order_ == 1 || call == 0 || (index + 1 == count() && first_order_end());
    double slope = 0;  // 1 / (2 r), r = the previous step's length in log-SNR over this one's
    if (!first_order) slope = 0.5 * std::log(from / to) / std::log(sigmas_[static_cast<size_t>(index) - 1] / from);
    const double keep = next.sigma / here.sigma;
    const double blend = next.alpha * (1 - to / from);  // -alpha' (e^-h - 1), e^-h = sigma' / sigma
    clean_before_.resize(sample.size());
    for (size_t i = 0; i < sample.size(); ++i) {
      const double x0 = estimate(schedule_.prediction(), output[i], sample[i], here).x0;
      const double extrapolated = x0 + slope * (x0 - clean_before_[i]);
      clean_before_[i] = static_cast<float>(x0);
      sample[i] = static_cast<float>(keep * sample[i] + blend * extrapolated);
    }
  }

  NoiseLevel level(int index) const override {
    const double s = sigmas_[static_cast<size_t>(index)], alpha = 1 / std::sqrt(s * s + 1);
    return {alpha, s * alpha};
  }
  int max_steps() const override { return schedule_.train_steps(); }

 private:
  // Timesteps of a lower log-SNR would be left out. Null (diffusers' minus infinity) leaves out none.
  void check_unclipped(const Settings& settings) const {
    constexpr const char* kKey = "lambda_min_clipped";
    constexpr double kLargest = std::numeric_limits<double>::max();
    const double lowest = -std::log(schedule_.sigmas().back());
    const double limit = settings.number(kKey, lowest, -kLargest, kLargest);
    TENON_CHECK(Model, limit <= lowest, settings.where(kKey))
        << "is " << limit << ", which leaves out the noisiest timesteps; expected at most " << lowest;
  }

  int count() const { return static_cast<int>(sigmas_.size()) - 1; }
  bool first_order_end() const {
    return last_sigma_ == 0 || euler_at_final_ || (lower_order_final_ && count() < kFewSteps);
  }

  // Unlike the other samplers, N steps are spaced as N + 1 and the last (cleanest) is dropped, except with trailing.
  std::vector<double> spaced(int steps) const {
    if (schedule_.spacing() == Spacing::Trailing) return trailing_timesteps(schedule_.train_steps(), steps);
    std::vector<double> times = schedule_.whole_timesteps(steps + 1);
    times.pop_back();
    return times;
  }

  NoiseSchedule schedule_;
  bool karras_;
  double last_sigma_;
  int order_ = 2;
  bool lower_order_final_ = true, euler_at_final_ = false;
  std::vector<double> sigmas_;
  std::vector<float> clean_before_;
};

class FlowDpmSolver2M : public FlowSampler {
 public:
  using FlowSampler::FlowSampler;

 protected:
  void advance(std::span<const float> output, int index, int call, std::span<float> sample,
               const NoiseSource&) override {
    const double from = sigma(index), to = sigma(index + 1), keep = to / from;
    double slope = 0;  // 1 / (2 r), r as above; also 0 after pure noise, which is infinitely far away
    if (call > 0 && index + 1 < steps())
      slope = 0.5 * (log_snr(to) - log_snr(from)) / (log_snr(from) - log_snr(sigma(index - 1)));
    const double blend = (1 - to) - (1 - from) * keep;
    clean_before_.resize(sample.size());
    for (size_t i = 0; i < sample.size(); ++i) {
      const double x0 = sample[i] - from * output[i];
      const double before = call > 0 ? clean_before_[i] : x0;
      clean_before_[i] = static_cast<float>(x0);
      sample[i] = static_cast<float>(keep * sample[i] + blend * (x0 + slope * (x0 - before)));
    }
  }

 private:
  static double log_snr(double sigma) { return std::log((1 - sigma) / sigma); }

  std::vector<float> clean_before_;
};

std::unique_ptr<Sampler> make_dpmpp_2m(const Settings& config, const SamplerOptions& options) {
  if (is_flow_matching(config)) return std::make_unique<FlowDpmSolver2M>(config, options);
  return std::make_unique<DpmSolver2M>(config, *options.karras);
}

const RegisterSampler kRegisteredDpmpp2m({.name = "dpm++2m",
                                          .a1111_name = "DPM++ 2M",
                                          .aliases = {"dpmpp2m", "dpmsolver++", "dpmsolvermultistep"},
                                          .diffusers_class = "DPMSolverMultistepScheduler",
                                          .karras = KarrasLevels::IfConfigured,
                                          .flow_matching = true,
                                          .make = make_dpmpp_2m});

}  // namespace
}  // namespace tenon
