// Z-Image as training sees it: its transformer, which predicts picture minus noise and counts time from noise to
// picture, as flow matching, which is asked for noise minus picture.
#pragma once
#include <memory>

#include "tenon/pipelines/families/z_image/model.h"
#include "tenon/pipelines/trainable_denoiser.h"

namespace tenon {

std::unique_ptr<TrainableDenoiser> z_image_training(std::shared_ptr<const ZImageModel> model,
                                                    const TrainableDenoiser::Options& options);

}  // namespace tenon
