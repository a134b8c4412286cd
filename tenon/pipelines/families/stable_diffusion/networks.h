// Plans of a Stable Diffusion model's networks, for given sizes.
#pragma once
#include "tenon/pipelines/families/stable_diffusion/model.h"
#include "tenon/pipelines/networks.h"

namespace tenon {

/// Sizes of one generation. Height and width in pixels.
struct GenerationShape {
  int64_t batch = 1, height = 512, width = 512;
  bool guided = true;
  int64_t tokens = 77;
  int64_t timesteps = 20;
};

/// Inputs "tokens" i32 [texts, 77]; result "hidden" f32 [texts, 77, width]. `clip_skip`: number of last layers left
/// out, as in clip_text.
Plan plan_text(const StableDiffusionModel& model, int64_t texts, const NetworkOptions& options, int64_t clip_skip = 0);
/// Inputs and result as in models/unet.h; the result is named "noise".
Plan plan_unet(const StableDiffusionModel& model, const GenerationShape& shape, const NetworkOptions& options);
/// Input "latents"; result "pixels" f32 [B,H,W,3] in [0,1].
Plan plan_vae_decode(const StableDiffusionModel& model, const GenerationShape& shape, const NetworkOptions& options);
/// Input "image" f32 [B,H,W,3] in [-1,1]; result "moments".
Plan plan_vae_encode(const StableDiffusionModel& model, const GenerationShape& shape, const NetworkOptions& options);

/// Its networks, by the names of their plans.
std::vector<NamedNetwork> networks_of(const StableDiffusionModel& model);

/// Throws Error(Usage), naming the nearest valid size, unless height and width are positive multiples of the VAE's
/// factor and not absurd.
void check_size(const StableDiffusionModel& model, int64_t height, int64_t width);

}  // namespace tenon
