#include "tenon/pipelines/samplers/noise_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tenon/core/error.h"

namespace tenon {
namespace {

constexpr int kMaxTrainSteps = 100000;

double as_f32(double x) { return static_cast<double>(static_cast<float>(x)); }

// f32 steps from both ends towards the middle, as in torch.linspace.
std::vector<float> linspace_f32(double start, double stop, int n) {
  const float a = static_cast<float>(start), b = static_cast<float>(stop);
  const float step = n > 1 ? (b - a) / static_cast<float>(n - 1) : 0.0f;
  std::vector<float> out(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i)
    out[static_cast<size_t>(i)] =
        i < n / 2 ? a + step * static_cast<float>(i) : b - step * static_cast<float>(n - i - 1);
  return out;
}

// Nichol & Dhariwal's cosine schedule, beta capped at 0.999.
std::vector<float> cosine_betas(int n) {
  const auto bar = [](double t) {
    const double c = std::cos((t + 0.008) / 1.008 * std::numbers::pi / 2);
    return c * c;
  };
  std::vector<float> out;
  for (int i = 0; i < n; ++i)
    out.push_back(static_cast<float>(std::min(1 - bar((i + 1.0) / n) / bar(static_cast<double>(i) / n), 0.999)));
  return out;
}

const char* key_of_betas(const Settings& settings, const char* computed) {
  return settings.has("trained_betas") ? "trained_betas" : computed;
}

std::vector<float> read_betas(const Settings& settings) {
  const int n = settings.integer("num_train_timesteps", 1000, 1, kMaxTrainSteps);
  const double start = settings.number("beta_start", 0.0001, 0, 0.999999);
  const double end = settings.number("beta_end", 0.02, 0, 0.999999);
  const size_t kind = settings.choice("beta_schedule", "linear", {"linear", "scaled_linear", "squaredcos_cap_v2"});
  std::vector<float> betas;
  if (const std::vector<double> given = settings.list("trained_betas"); !given.empty()) {
    TENON_CHECK(Model, given.size() == static_cast<size_t>(n), settings.where("trained_betas"))
        << "expected num_train_timesteps = " << n << " numbers, got " << given.size();
    for (const double b : given) {
      TENON_CHECK(Model, b >= 0 && b < 1, settings.where("trained_betas")) << "expected numbers in 0..1, got " << b;
      betas.push_back(static_cast<float>(b));
    }
  } else if (kind == 0) {
    betas = linspace_f32(start, end, n);
  } else if (kind == 1) {
    betas = linspace_f32(std::sqrt(start), std::sqrt(end), n);
    for (float& b : betas) b *= b;
  } else {
    betas = cosine_betas(n);
  }
  // After a first step without noise there is no noise to predict: the division would be 0 / 0.
  TENON_CHECK(Model, 1.0f - betas.front() < 1, settings.where(key_of_betas(settings, "beta_start")))
      << "the first step adds no noise (beta " << betas.front() << "): expected a number above 0";
  return betas;
}

std::vector<double> running_product(const std::vector<float>& betas) {
  std::vector<double> out;
  double product = 1;
  for (const float b : betas) {
    product *= static_cast<double>(1.0f - b);
    out.push_back(as_f32(product));
  }
  return out;
}

// Zero terminal SNR (Lin et al. 2023, algorithm 1): shift and scale sqrt(a) so that it ends at 0 and starts unchanged.
std::vector<double> zero_terminal_snr(const std::vector<double>& product) {
  const double first = std::sqrt(product.front()), last = std::sqrt(product.back());
  std::vector<float> betas;
  double before = 1;
  for (const double a : product) {
    const double root = (std::sqrt(a) - last) * first / (first - last);
    betas.push_back(static_cast<float>(1 - root * root / before));
    before = root * root;
  }
  return running_product(betas);
}

// Variance of the noise over that of the signal.
float variance(double product) { return static_cast<float>(1 - product) / static_cast<float>(product); }

}  // namespace

NoiseSchedule::NoiseSchedule(const Settings& settings, const ScheduleDefaults& defaults)
    : product_(running_product(read_betas(settings))),
      prediction_(static_cast<Prediction>(
          settings.choice("prediction_type", "epsilon", {"epsilon", "v_prediction", "sample"}))),
      spacing_(static_cast<Spacing>(
          settings.choice("timestep_spacing", defaults.spacing, {"leading", "trailing", "linspace"}))),
      steps_offset_(settings.integer("steps_offset", 0, 0, kMaxTrainSteps)) {
  if (defaults.zero_snr_key && settings.flag("rescale_betas_zero_snr", false)) {
    TENON_CHECK(Model, product_.front() > product_.back(), settings.where("rescale_betas_zero_snr"))
        << "the betas add no noise";
    product_ = zero_terminal_snr(product_);
    if (defaults.nudge_zero) product_.back() = std::exp2(-24);
  } else {
    const auto lost = std::ranges::find_if(product_, [](double a) { return !std::isfinite(variance(a)); });
    TENON_CHECK(Model, lost == product_.end(), settings.where(key_of_betas(settings, "beta_start, beta_end")))
        << "expected smaller numbers: the betas leave no signal at timestep " << lost - product_.begin() << " of 0.."
        << train_steps() - 1;
  }
}

double NoiseSchedule::product(int64_t t) const {
  TENON_CHECK(Usage, t >= 0 && t < train_steps(), "steps")
      << "this number of steps, with steps_offset " << steps_offset_ << ", reaches timestep " << t << " of 0.."
      << train_steps() - 1;
  return product_[static_cast<size_t>(t)];
}

std::vector<double> NoiseSchedule::sigmas() const {
  std::vector<double> out;
  for (const double a : product_) out.push_back(static_cast<double>(std::sqrt(variance(a))));
  return out;
}

std::vector<double> NoiseSchedule::whole_timesteps(int steps) const {
  if (spacing_ == Spacing::Trailing) return trailing_timesteps(train_steps(), steps);
  std::vector<double> out;
  if (spacing_ == Spacing::Linspace) {
    out = linspace(0, train_steps() - 1, steps);
    for (double& t : out) t = std::nearbyint(t);
  } else {
    for (int i = 0; i < steps; ++i) out.push_back(static_cast<double>(i) * (train_steps() / steps) + steps_offset_);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

Estimate estimate(Prediction prediction, double output, double x, NoiseLevel level) {
  switch (prediction) {
    case Prediction::Epsilon:
      return {(x - level.sigma * output) / level.alpha, output};
    case Prediction::V:
      return {level.alpha * x - level.sigma * output, level.alpha * output + level.sigma * x};
    case Prediction::Sample:
      break;
  }
  return {output, (x - level.alpha * output) / level.sigma};
}

std::vector<double> linspace(double start, double stop, int n) {
  std::vector<double> out;
  const double step = n > 1 ? (stop - start) / (n - 1) : 0;
  for (int i = 0; i < n; ++i) out.push_back(start + i * step);
  if (n > 1) out.back() = stop;
  return out;
}

std::vector<double> trailing_timesteps(int train_steps, int n) {
  // arange steps by (start - ratio) - start rather than by ratio; then halves round as in numpy.
  const double start = train_steps, ratio = start / n, delta = (start - ratio) - start;
  std::vector<double> out;
  for (int i = 0; i < n; ++i) out.push_back(std::nearbyint(i == 1 ? start - ratio : start + i * delta) - 1);
  return out;
}

}  // namespace tenon
