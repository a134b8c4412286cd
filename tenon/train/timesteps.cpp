#include "tenon/train/timesteps.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "tenon/core/error.h"
#include "tenon/core/text.h"

namespace tenon::train {
namespace {
constexpr std::array<const char*, 5> kNames = {"none", "logit_normal", "mode", "sigma_sqrt", "cosmap"};
constexpr double kMinSigma = 1e-3;  // keeps sigma_sqrt's weight finite where there is no noise
}  // namespace

std::vector<std::string> density_names() { return {kNames.begin(), kNames.end()}; }

Density density_of(const std::string& name) {
  const auto* const it = std::ranges::find(kNames, name);
  TENON_CHECK(Usage, it != kNames.end(), "weighting scheme")
      << "'" << shown(name) << "' is none of " << joined(density_names());
  return static_cast<Density>(it - kNames.begin());
}

void check_timesteps(const TimestepOptions& o, nn::DenoisingTarget target) {
  const bool flow = target == nn::DenoisingTarget::Flow;
  TENON_CHECK(Usage, flow || o.density == Density::Uniform, "weighting scheme")
      << "'" << kNames[static_cast<size_t>(o.density)] << "' is for flow matching; this model takes 'none' only";
  TENON_CHECK(Usage, !flow || o.snr_gamma == 0, "snr gamma")
      << "does not apply to flow-matching models such as this one";
  TENON_CHECK(Usage, std::isfinite(o.snr_gamma) && o.snr_gamma >= 0, "snr gamma")
      << o.snr_gamma << ": expected 0 (none) or more";
  TENON_CHECK(Usage, std::isfinite(o.logit_mean) && std::isfinite(o.logit_std) && o.logit_std > 0, "logit")
      << "mean " << o.logit_mean << " and standard deviation " << o.logit_std
      << ": expected numbers, the second above 0";
  TENON_CHECK(Usage, o.mode_scale >= -1 && o.mode_scale <= 2 / (std::numbers::pi - 2), "mode scale")
      << o.mode_scale << ": expected -1 to 1.75, where u stays in [0, 1]";
}

double density_u(const TimestepOptions& o, double uniform, double normal) {
  if (o.density == Density::LogitNormal) return 1 / (1 + std::exp(-(o.logit_mean + o.logit_std * normal)));
  if (o.density != Density::Mode) return uniform;
  const double c = std::cos(std::numbers::pi * uniform / 2);
  return 1 - uniform - o.mode_scale * (c * c - 1 + uniform);
}

const TrainingLevel& level_at(const std::vector<TrainingLevel>& levels, double u) {
  TENON_CHECK(Usage, !levels.empty() && !std::isnan(u), "noise levels") << "there is none at " << u;
  const auto count = static_cast<double>(levels.size());
  return levels[static_cast<size_t>(std::clamp(std::floor(u * count), 0.0, count - 1))];
}

double loss_weight(const TimestepOptions& o, nn::DenoisingTarget target, const TrainingLevel& level) {
  const double s = level.noise;
  if (o.density == Density::SigmaSqrt) return 1 / std::pow(std::max(s, kMinSigma), 2);
  if (o.density == Density::Cosmap) return 2 / (std::numbers::pi * (1 - 2 * s + 2 * s * s));
  if (o.snr_gamma == 0) return 1;
  const double snr = std::pow(level.picture / s, 2), least = std::min(snr, o.snr_gamma);
  switch (target) {
    case nn::DenoisingTarget::Noise:
      return snr > 0 ? least / snr : 1;
    case nn::DenoisingTarget::Velocity:
      return least / (snr + 1);
    default:
      return least;
  }
}

}  // namespace tenon::train
