// The training objective of denoising networks as expressions: noised latents, prediction targets and the loss.
#pragma once
#include <cstdint>

#include "tenon/expr/expr.h"

namespace tenon::nn {

/// What a network predicts, given x = a x0 + s noise.
enum class DenoisingTarget : uint8_t {
  Noise,     ///< the noise (epsilon)
  Velocity,  ///< a noise - s x0 (Salimans and Ho 2022, "v")
  Sample,    ///< x0
  Flow       ///< noise - x0 = d x / d s of the straight path a = 1 - s
};

/// The amounts a of picture and s of noise in each image: f32 [B,1,1,1] each.
struct NoiseShares {
  Expr picture, noise;
};

/// a x0 + s noise: f32 [B,C,h,w], as x0 and noise are.
Expr noised(const Expr& x0, const Expr& noise, const NoiseShares& shares);
/// The prediction target of the network, f32 [B,C,h,w].
Expr denoising_target(DenoisingTarget kind, const Expr& x0, const Expr& noise, const NoiseShares& shares);
/// The mean over images of weight times the mean squared error of the image: f32, rank 0. weight f32 [B]. Throws
/// Error(Usage) if shapes differ.
Expr denoising_loss(const Expr& prediction, const Expr& target, const Expr& weight);

}  // namespace tenon::nn
