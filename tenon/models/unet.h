// The denoising network of Stable Diffusion 1.x (diffusers' UNet2DConditionModel): residual blocks with a time
// embedding, transformer blocks with cross-attention to the text, and skip connections between the two halves of the U.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/models/weights.h"
#include "tenon/nn/norm.h"
#include "tenon/nn/scope.h"

namespace tenon {

/// The defaults are Stable Diffusion 1.5.
struct UNetConfig {
  /// One resolution: its channels, and whether its down and up blocks contain transformer blocks.
  struct Level {
    int64_t channels = 0;
    int64_t heads = 8;
    bool down_attention = true, up_attention = true;
  };
  int64_t in_channels = 4;
  int64_t out_channels = 4;
  std::vector<Level> levels = {{320}, {640}, {1280}, {1280, 8, false, false}};
  int64_t layers_per_block = 2;  ///< residual blocks per down block; an up block has one more
  int64_t context_dim = 768;
  int64_t norm_groups = 32;
  double norm_eps = 1e-5;
  int64_t time_dim = 1280;
  double freq_shift = 0;
  bool sin_first = false;
};

/// From diffusers' config.json; absent keys take UNet2DConditionModel's defaults. Error(Model) names `where`, key and
/// value for what is not implemented (inpainting, SD 2.x, SDXL).
UNetConfig unet_config(const nlohmann::json& config, const std::string& where);
/// From names and shapes alone. They do not show the number of heads and of norm groups: 8 and 32 are assumed.
/// Error(Model) for another architecture, naming the tensor that shows it.
UNetConfig detect_unet(const WeightShapes& weights, const std::string& where);

/// The sizes of one evaluation.
struct UNetShape {
  int64_t batch = 1;    ///< images
  bool guided = false;  ///< the batch goes through the network twice over: negative prompts first, then positive ones
  int64_t height = 64;  ///< of the latents; any size, odd ones too
  int64_t width = 64;
  int64_t tokens = 77;    ///< of the text
  int64_t timesteps = 1;  ///< of the schedule
  int64_t model_batch() const { return guided ? 2 * batch : batch; }
};

/// The network's inputs.
struct UNetInputs {
  Expr latents;    ///< f32 [B,in_channels,h,w] (NCHW)
  Expr timesteps;  ///< f32 [T], fractional or whole
  Expr step;       ///< i32 scalar: index into timesteps; unset: T = B', one timestep per image
  Expr context;    ///< [B',S,context_dim], hidden states of the text; B' = B or 2B
};
/// Inputs "latents" (rate step), "timesteps" (schedule), "step" (step), "context" in p.act (prompt).
UNetInputs unet_inputs(Graph& g, const UNetConfig& c, const UNetShape& s, nn::Precision p);

/// The network's output, f32 [B',out_channels,h,w] (NCHW), not rounded. If the context has twice the latents' batch,
/// the latents are used twice. Error(Usage) for inputs that do not match.
Expr unet(const UNetConfig& c, const UNetInputs& in, nn::Precision p);
/// The network over unet_inputs.
Expr unet(Graph& g, const UNetConfig& c, const UNetShape& s, nn::Precision p);

/// Every tensor of the component.
WeightShapes unet_weights(const UNetConfig& c);

}  // namespace tenon
