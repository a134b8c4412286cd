// The noise schedule of training (betas and their running product) and the spacing of inference steps over it.
#pragma once
#include <vector>

#include "tenon/pipelines/samplers/sampler.h"
#include "tenon/pipelines/samplers/settings.h"

namespace tenon {

/// What the model was trained to predict.
enum class Prediction { Epsilon, V, Sample };
enum class Spacing { Leading, Trailing, Linspace };

/// Defaults that differ between diffusers' classes.
struct ScheduleDefaults {
  std::string_view spacing = "leading";
  bool zero_snr_key = true;  ///< the class has the key rescale_betas_zero_snr
  bool nudge_zero = false;   ///< with zero terminal SNR the last product is 2^-24 instead of 0
};

/// The clean sample and the noise that a model output implies.
struct Estimate {
  double x0, eps;
};

/// a[t] = prod_{i<=t} (1 - beta_i), held as the f32 numbers that training code and diffusers compute (betas and
/// 1 - beta rounded to f32, product accumulated in f64): near t = 0 their rounding is visible in 1 - a.
class NoiseSchedule {
 public:
  /// Throws Error(Model) for unsupported settings, and for betas that start with 0 or leave no signal in f32 (except
  /// with rescale_betas_zero_snr).
  NoiseSchedule(const Settings& settings, const ScheduleDefaults& defaults);

  int train_steps() const { return static_cast<int>(product_.size()); }
  Prediction prediction() const { return prediction_; }
  Spacing spacing() const { return spacing_; }
  int steps_offset() const { return steps_offset_; }
  /// a[t]; Error(Usage) for t outside 0..train_steps-1: the spacing leaves the schedule.
  double product(int64_t t) const;
  /// sqrt((1 - a) / a) for every training timestep, as positive f32 numbers.
  std::vector<double> sigmas() const;

  /// Integer timesteps of `steps` steps, noisiest first: leading, trailing or rounded linspace.
  std::vector<double> whole_timesteps(int steps) const;

 private:
  std::vector<double> product_;
  Prediction prediction_;
  Spacing spacing_;
  int steps_offset_;
};

/// The clean sample and noise implied by a model output, for x = alpha * x0 + sigma * eps.
Estimate estimate(Prediction prediction, double output, double x, NoiseLevel level);

/// n points from start to stop inclusive (only start for n = 1), computed as numpy.linspace does.
std::vector<double> linspace(double start, double stop, int n);

/// round(train - i * train / n) - 1 for i = 0..n-1, half to even, computed as numpy.arange does.
std::vector<double> trailing_timesteps(int train_steps, int n);

}  // namespace tenon
