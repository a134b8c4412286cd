// Noise levels in the variance-exploding form (sigma = noise / signal), shared by the samplers that are written in it.
#pragma once
#include <vector>

#include "tenon/pipelines/samplers/noise_schedule.h"

namespace tenon {

/// `table` (one number a training timestep) read at a fractional timestep, linearly, clamped to its ends.
double interpolate(const std::vector<double>& table, double at);

/// Karras et al. 2022, eq. 5 with rho 7: n sigmas from high to low.
std::vector<double> karras_sigmas(double high, double low, int n);

/// The fractional timestep whose sigma this is, by linear interpolation of log sigma over the increasing `table`.
double timestep_of(const std::vector<double>& table, double sigma);

/// sigma after the last step: 0, or for final_sigmas_type "sigma_min" the smallest of training.
double final_sigma(const Settings& settings, const NoiseSchedule& schedule);

/// Base of the samplers that step from sigma to sigma in xhat = x / sqrt(a): Euler and its ancestral form.
class EulerFamily : public Sampler {
 public:
  double init_noise_sigma() const override;
  void scale_model_input(std::span<float> x, int call) const override;

 protected:
  /// `use_karras`: Karras levels between the first and last spaced sigma, or sigma_max and sigma_min of the config.
  /// `final_key`: the class knows final_sigmas_type; without it the last sigma is 0.
  EulerFamily(const Settings& settings, bool use_karras, bool final_key);

  std::vector<double> lay_out(int steps) override;
  NoiseLevel level(int index) const override { return {1, sigma(index)}; }
  int max_steps() const override { return schedule_.train_steps(); }

  /// Sigma before step `index`; index = steps is the final one.
  double sigma(int index) const { return sigmas_[static_cast<size_t>(index)]; }
  /// d xhat / d sigma that a model output stands for.
  double derivative(double output, double xhat, double sigma) const;
  const NoiseSchedule& schedule() const { return schedule_; }

 private:
  NoiseSchedule schedule_;
  bool karras_;
  double last_sigma_;
  double low_limit_, high_limit_;  // 0: none given
  std::vector<double> sigmas_;
};

}  // namespace tenon
