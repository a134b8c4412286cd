#include "tenon/pipelines/families/stable_diffusion/networks.h"

#include "tenon/pipelines/denoise.h"

namespace tenon {

Plan plan_text(const StableDiffusionModel& model, int64_t texts, const NetworkOptions& options, int64_t clip_skip) {
  Graph g;
  const ClipTextConfig& c = model.config().text;
  return plan_one("text_encoder", "hidden", clip_text(g, c, texts, c.positions, options.precision, clip_skip), options);
}

Plan plan_unet(const StableDiffusionModel& model, const GenerationShape& shape, const NetworkOptions& options) {
  const int64_t factor = model.config().vae.downsampling();
  UNetShape s;
  s.batch = shape.batch;
  s.guided = shape.guided;
  s.height = shape.height / factor;
  s.width = shape.width / factor;
  s.tokens = shape.tokens;
  s.timesteps = shape.timesteps;
  Graph g;
  return plan_one("unet", "noise", unet(g, model.config().unet, s, options.precision), options);
}

Plan plan_vae_decode(const StableDiffusionModel& model, const GenerationShape& shape, const NetworkOptions& options) {
  Graph g;
  const VaeConfig& c = model.config().vae;
  const int64_t factor = c.downsampling();
  const Expr image = vae_decode(g, c, shape.batch, shape.height / factor, shape.width / factor, options.precision);
  return plan_one("vae_decoder", "pixels", image, options);
}

Plan plan_vae_encode(const StableDiffusionModel& model, const GenerationShape& shape, const NetworkOptions& options) {
  Graph g;
  const Expr moments = vae_encode(g, model.config().vae, shape.batch, shape.height, shape.width, options.precision);
  return plan_one("vae_encoder", "moments", moments, options);
}

std::vector<NamedNetwork> networks_of(const StableDiffusionModel& model) {
  const auto weights = expected_weights(model.config());
  return {{"text_encoder", weights.at("text_encoder")},
          {"unet", weights.at("unet")},
          {"vae_decoder", weights.at("vae")},
          {"vae_encoder", weights.at("vae")}};
}

void check_size(const StableDiffusionModel& model, int64_t height, int64_t width) {
  check_sides(height, width, model.config().vae.downsampling());
}

}  // namespace tenon
