// Z-Image for training. Its transformer predicts picture minus noise with time running from noise to picture; it is
// presented as flow matching, whose target is noise minus picture.
#pragma once
#include <memory>

#include "tenon/pipelines/families/z_image/model.h"
#include "tenon/pipelines/trainable_denoiser.h"

namespace tenon {

std::unique_ptr<TrainableDenoiser> z_image_training(std::shared_ptr<const ZImageModel> model,
                                                    const TrainableDenoiser::Options& options);

}  // namespace tenon
