#include "tenon/models/stable_diffusion.h"

#include "tenon/core/error.h"

namespace tenon {
namespace {

// Reads a component's configuration from its config.json or, failing that, infers it from its weights.
template <class Config>
void configure(Config& out, const StableDiffusionCheckpoint& checkpoint, const char* name,
               Config (*read)(const nlohmann::json&, const std::string&),
               Config (*detect)(const WeightShapes&, const std::string&)) {
  if (!checkpoint.has(name)) return;
  const Component& component = checkpoint.component(name);
  if (component.config.is_null()) {
    component.require_readable();
    out = detect(shapes_of(component), checkpoint.path().string() + " (" + name + ")");
  } else {
    out = read(component.config, component.config_file());
  }
}

}  // namespace

WeightShapes shapes_of(const Component& component) { return component.shapes(); }

StableDiffusionConfig stable_diffusion_config(const StableDiffusionCheckpoint& checkpoint) {
  StableDiffusionConfig c;
  configure(c.unet, checkpoint, "unet", unet_config, detect_unet);
  configure(c.text, checkpoint, "text_encoder", clip_text_config, detect_clip_text);
  configure(c.vae, checkpoint, "vae", vae_config, detect_vae);
  if (checkpoint.has("unet") && checkpoint.has("text_encoder") && checkpoint.has("vae"))
    check_parts_fit(c, checkpoint.path().string());
  return c;
}

void check_parts_fit(const StableDiffusionConfig& c, const std::string& where) {
  TENON_CHECK(Model, c.text.hidden == c.unet.context_dim, where)
      << "the text encoder's width " << c.text.hidden << " is not the UNet's cross_attention_dim "
      << c.unet.context_dim;
  TENON_CHECK(Model, c.vae.latent_channels == c.unet.in_channels, where)
      << "the VAE's " << c.vae.latent_channels << " latent channels are not the UNet's " << c.unet.in_channels;
  TENON_CHECK(Model, c.vae.shift_factor == 0, where)
      << "the VAE's shift_factor is " << c.vae.shift_factor << ", which Stable Diffusion's latents do not have";
}

std::map<std::string, WeightShapes> expected_weights(const StableDiffusionConfig& c) {
  return {{"text_encoder", clip_text_weights(c.text)}, {"unet", unet_weights(c.unet)}, {"vae", vae_weights(c.vae)}};
}

std::map<std::string, WeightReport> check_checkpoint(const StableDiffusionCheckpoint& checkpoint,
                                                     const StableDiffusionConfig& c) {
  std::map<std::string, WeightReport> out;
  for (const auto& [name, expected] : expected_weights(c))
    if (checkpoint.has(name)) out.emplace(name, check_weights(expected, shapes_of(checkpoint.component(name))));
  return out;
}

}  // namespace tenon
