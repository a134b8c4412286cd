// Which noise levels a denoiser is trained at, and what each counts in the loss.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/pipelines/trainable_denoiser.h"

namespace tenon::train {

/// How u in [0, 1], the place among a model's noise levels from the noisiest on, is drawn; names as diffusers has them
/// (Esser et al. 2024). The last two change the loss's weight instead.
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
  double snr_gamma = 0;  ///< min-SNR weighting (Hang et al. 2023) of noise, velocity or picture prediction; 0: none
};
/// Error(Usage) that names what is out of its range or not of this kind of training.
void check_timesteps(const TimestepOptions& o, nn::DenoisingTarget target);

/// u of a uniform and of a normal number.
double density_u(const TimestepOptions& o, double uniform, double normal);
/// The level that u stands for: number floor(u * levels), the last one for u = 1.
const TrainingLevel& level_at(const std::vector<TrainingLevel>& levels, double u);
/// What an image at this level counts.
double loss_weight(const TimestepOptions& o, nn::DenoisingTarget target, const TrainingLevel& level);

}  // namespace tenon::train
