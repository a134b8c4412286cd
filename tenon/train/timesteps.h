// Which noise levels a denoiser is trained at, and their weight in the loss.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/pipelines/trainable_denoiser.h"

namespace tenon::train {

/// Distribution of u in [0, 1), the position among a model's noise levels, noisiest first; names as in diffusers (Esser
/// et al. 2024). The last two change the loss's weight instead.
enum class Density : uint8_t {
  Uniform,      ///< "none"
  LogitNormal,  ///< sigmoid of a normal number
  Mode,         ///< 1 - u - scale (cos^2(pi u / 2) - 1 + u) of a uniform u
  SigmaSqrt,    ///< uniform, weight s^-2
  Cosmap        ///< uniform, weight 2 / (pi (1 - 2 s + 2 s^2))
};
std::vector<std::string> density_names();
/// Error(Usage) for another name.
Density density_of(const std::string& name);

struct TimestepOptions {
  Density density = Density::Uniform;
  double logit_mean = 0, logit_std = 1, mode_scale = 1.29;
  double snr_gamma = 0;  ///< min-SNR weighting (Hang et al. 2023) for noise, velocity or picture prediction; 0: none
};
/// Error(Usage) that names an option out of range or not applicable to this kind of training.
void check_timesteps(const TimestepOptions& o, nn::DenoisingTarget target);

/// u from a uniform and a normal number.
double density_u(const TimestepOptions& o, double uniform, double normal);
/// The level for u: number floor(u * levels), or the last one for u = 1. Error(Usage) if there are none.
const TrainingLevel& level_at(const std::vector<TrainingLevel>& levels, double u);
/// The weight of an image at this level.
double loss_weight(const TimestepOptions& o, nn::DenoisingTarget target, const TrainingLevel& level);

}  // namespace tenon::train
