#include "tenon/pipelines/samplers/sigma_schedule.h"

#include <algorithm>
#include <cmath>

#include "tenon/core/error.h"

namespace tenon {
namespace {

constexpr ScheduleDefaults kEulerDefaults{.spacing = "linspace", .zero_snr_key = true, .nudge_zero = true};
constexpr double kMaxSigma = 1e6;

}  // namespace

double interpolate(const std::vector<double>& table, double at) {
  const double last = static_cast<double>(table.size() - 1);
  const double clamped = std::clamp(at, 0.0, last);
  const size_t low = static_cast<size_t>(std::min(std::floor(clamped), std::max(last - 1, 0.0)));
  const size_t high = std::min(low + 1, table.size() - 1);
  return table[low] + (table[high] - table[low]) * (clamped - static_cast<double>(low));
}

std::vector<double> karras_sigmas(double high, double low, int n) {
  constexpr double kRho = 7;
  const double a = std::pow(high, 1 / kRho), b = std::pow(low, 1 / kRho);
  std::vector<double> out = linspace(0, 1, n);
  for (double& s : out) s = std::pow(a + s * (b - a), kRho);
  return out;
}

double timestep_of(const std::vector<double>& table, double sigma) {
  if (table.size() < 2) return 0;
  const auto above = std::upper_bound(table.begin(), table.end(), sigma);
  const size_t last_start = table.size() - 2;
  const size_t low = above == table.begin() ? 0 : std::min(static_cast<size_t>(above - table.begin()) - 1, last_start);
  // A beta of 0 leaves the noise unchanged; here only the last pair can be equal.
  if (table[low] == table[low + 1]) return static_cast<double>(low) + 1;
  const double a = std::log(table[low]), b = std::log(table[low + 1]);
  return static_cast<double>(low) + std::clamp((a - std::log(sigma)) / (a - b), 0.0, 1.0);
}

double final_sigma(const Settings& settings, const NoiseSchedule& schedule) {
  return settings.choice("final_sigmas_type", "zero", {"zero", "sigma_min"}) ? schedule.sigmas().front() : 0;
}

EulerFamily::EulerFamily(const Settings& settings, bool use_karras)
    : schedule_(settings, kEulerDefaults),
      karras_(use_karras),
      low_limit_(settings.number("sigma_min", 0, 0, kMaxSigma)),
      high_limit_(settings.number("sigma_max", 0, 0, kMaxSigma)) {}

std::vector<double> EulerFamily::lay_out(int steps) {
  std::vector<double> times;
  if (schedule_.spacing() == Spacing::Linspace) {
    times = linspace(0, schedule_.train_steps() - 1, steps);
    std::reverse(times.begin(), times.end());
    for (double& t : times) t = static_cast<double>(static_cast<float>(t));
  } else {
    times = schedule_.whole_timesteps(steps);
  }
  const std::vector<double> table = schedule_.sigmas();
  sigmas_.clear();
  for (const double t : times) sigmas_.push_back(interpolate(table, t));
  if (karras_) {
    const double high = high_limit_ > 0 ? high_limit_ : sigmas_.front();
    const double low = low_limit_ > 0 ? low_limit_ : sigmas_.back();
    sigmas_ = karras_sigmas(high, low, steps);
    for (size_t i = 0; i < times.size(); ++i) times[i] = timestep_of(table, sigmas_[i]);
  }
  sigmas_.push_back(last_sigma_);
  for (double& s : sigmas_) s = static_cast<double>(static_cast<float>(s));
  for (size_t i = 0; i + 1 < sigmas_.size(); ++i)
    TENON_CHECK(Usage, sigmas_[i] > 0, "steps") << "the noise level of step " << i << " is 0";
  return times;
}

double EulerFamily::init_noise_sigma() const {
  TENON_CHECK(Internal, !sigmas_.empty(), "init_noise_sigma") << "called before set_steps";
  const double top = *std::max_element(sigmas_.begin(), sigmas_.end());
  return schedule_.spacing() == Spacing::Leading ? std::sqrt(top * top + 1) : top;
}

void EulerFamily::scale_model_input(std::span<float> x, int call) const {
  const double s = noise_level(call).sigma, scale = std::sqrt(s * s + 1);
  for (float& v : x) v = static_cast<float>(v / scale);
}

double EulerFamily::derivative(double output, double xhat, double sigma) const {
  switch (schedule_.prediction()) {
    case Prediction::Epsilon:
      return output;
    case Prediction::V: {
      const double up = sigma * sigma + 1;
      return (xhat - (xhat / up - output * sigma / std::sqrt(up))) / sigma;
    }
    case Prediction::Sample:
      break;
  }
  return (xhat - output) / sigma;
}

}  // namespace tenon
