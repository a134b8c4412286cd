// Noise levels in variance-exploding form (sigma = noise / signal), shared by the samplers formulated that way.
#pragma once
#include <vector>

#include "tenon/pipelines/samplers/noise_schedule.h"

namespace tenon {

/// `table` (one number per training timestep) at a fractional timestep, interpolated linearly, clamped to its ends.
double interpolate(const std::vector<double>& table, double at);

/// Karras et al. 2022, eq. 5 with rho 7: n sigmas from high to low.
std::vector<double> karras_sigmas(double high, double low, int n);

/// The fractional timestep with this sigma, by linear interpolation of log sigma over the increasing `table`.
double timestep_of(const std::vector<double>& table, double sigma);

/// sigma after the last step: 0, or for final_sigmas_type "sigma_min" the smallest of training.
double final_sigma(const Settings& settings, const NoiseSchedule& schedule);

/// Base of Euler and Euler ancestral, which step from sigma to sigma in xhat = x / sqrt(a).
class EulerFamily : public Sampler {
 public:
  double init_noise_sigma() const override;
  void scale_model_input(std::span<float> x, int call) const override;

 protected:
  /// `use_karras`: Karras levels between the first and last spaced sigma, or between the config's sigma_max and
  /// sigma_min. The last sigma is 0.
  EulerFamily(const Settings& settings, bool use_karras);
  void set_last_sigma(double sigma) { last_sigma_ = sigma; }

  std::vector<double> lay_out(int steps) override;
  NoiseLevel level(int index) const override { return {1, sigma(index)}; }
  int max_steps() const override { return schedule_.train_steps(); }

  /// Sigma before step `index`; index = steps is the final one.
  double sigma(int index) const { return sigmas_[static_cast<size_t>(index)]; }
  /// The d xhat / d sigma that a model output implies.
  double derivative(double output, double xhat, double sigma) const;
  const NoiseSchedule& schedule() const { return schedule_; }

 private:
  NoiseSchedule schedule_;
  bool karras_;
  double last_sigma_ = 0;
  double low_limit_, high_limit_;  // 0: not given
  std::vector<double> sigmas_;
};

}  // namespace tenon
