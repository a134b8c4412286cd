// The three networks of a Stable Diffusion 1.x model together: their configurations, whether they fit one another, and
// whether a checkpoint has the tensors that they need.
#pragma once
#include <map>
#include <string>

#include "tenon/models/clip_text.h"
#include "tenon/models/stable_diffusion_checkpoint.h"
#include "tenon/models/unet.h"
#include "tenon/models/vae.h"

namespace tenon {

/// The defaults are Stable Diffusion 1.5.
struct StableDiffusionConfig {
  ClipTextConfig text;
  UNetConfig unet;
  VaeConfig vae;
};

/// The configurations of the components that the checkpoint has (others keep Stable Diffusion 1.5's), from their
/// config.json or else from their weights. Error(Model) for another architecture, an unsupported configuration, or
/// parts that do not fit one another.
StableDiffusionConfig stable_diffusion_config(const StableDiffusionCheckpoint& checkpoint);
/// Checks that the networks fit one another (text width, latent channels); Error(Model) at `where` names both sides.
void check_parts_fit(const StableDiffusionConfig& c, const std::string& where);

/// Names and shapes of a component's tensors.
WeightShapes shapes_of(const Component& component);
/// Names and shapes that each component ("text_encoder", "unet", "vae") should have.
std::map<std::string, WeightShapes> expected_weights(const StableDiffusionConfig& c);
/// check_weights of every component that the checkpoint has.
std::map<std::string, WeightReport> check_checkpoint(const StableDiffusionCheckpoint& checkpoint,
                                                     const StableDiffusionConfig& c);

}  // namespace tenon
