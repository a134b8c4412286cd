// Stable Diffusion 1.x for training: the UNet, with noise, velocity or picture as the target that its scheduler says.
#pragma once
#include <memory>

#include "tenon/pipelines/families/stable_diffusion/model.h"
#include "tenon/pipelines/trainable_denoiser.h"

namespace tenon {

std::unique_ptr<TrainableDenoiser> stable_diffusion_training(std::shared_ptr<const StableDiffusionModel> model,
                                                             const TrainableDenoiser::Options& options);

}  // namespace tenon
