// The denoising network of Z-Image (diffusers' ZImageTransformer2DModel): one stream of image and text tokens through
// transformer blocks with norms in front of and behind every layer, modulated by the time.
//
// Weights go by diffusers' names ("layers.0.attention.to_q.weight").
#pragma once
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "tenon/models/weights.h"
#include "tenon/nn/scope.h"

namespace tenon {

/// The defaults are the published Z-Image and Z-Image-Turbo.
struct ZImageConfig {
  int64_t channels = 16;  ///< of the latents
  int64_t width = 3840, layers = 30, refiners = 2, heads = 30;
  int64_t text_width = 2560;  ///< of the text's features
  double eps = 1e-5, theta = 256, time_scale = 1000;
  std::array<int64_t, 3> axis_depths = {32, 48, 48};       ///< of a head: frame, row, column
  std::array<int64_t, 3> axis_lengths = {1536, 512, 512};  ///< positions that were trained

  int64_t head_width() const { return width / heads; }
  int64_t hidden() const { return static_cast<int64_t>(static_cast<double>(width) / 3 * 8); }
  int64_t condition() const { return width < 256 ? width : 256; }  ///< elements of the time embedding
};

/// Latents along a side of a token.
inline constexpr int64_t kZImagePatch = 2;
/// Sequences of image tokens and of text tokens are filled up to multiples of this.
inline constexpr int64_t kZImageSequence = 32;

/// From diffusers' config.json; absent keys take ZImageTransformer2DModel's defaults. Error(Model) names `where`, key
/// and value for what is not implemented (other patches, features of pictures).
ZImageConfig z_image_config(const nlohmann::json& config, const std::string& where);
/// From names and shapes alone; what they do not show is as published, and a head is divided among the axes as there.
/// Error(Model) for another kind.
ZImageConfig detect_z_image(const WeightShapes& weights, const std::string& where);

/// What one evaluation works on.
struct ZImageShape {
  int64_t batch = 1;                  ///< images
  bool guided = false;                ///< twice the batch goes through: positive prompts first, then negative ones
  int64_t height = 128, width = 128;  ///< of the latents, even
  int64_t tokens = 32;                ///< rows of the longest text, a multiple of kZImageSequence
  bool equal_texts = true;            ///< all texts take `tokens` rows once they are filled up: nothing is masked
  int64_t timesteps = 1;              ///< of the schedule
  int64_t sequences() const { return guided ? 2 * batch : batch; }
};

/// The values that the network reads.
struct ZImageInputs {
  Expr latents;             ///< f32 [B,channels,h,w] (NCHW)
  Expr times;               ///< f32 [T], 0 (noise) to 1 (picture)
  Expr step;                ///< i32 scalar: which time; unset: T = B', each image has its own
  Expr text;                ///< [B',S,text_width]; what lies behind a text's last token is not read; B' = B or 2B
  Expr text_tokens;         ///< i32 [B'], tokens of each text, 1..S
  bool equal_texts = true;  ///< as ZImageShape
};
/// Inputs "latents" (rate step), "times" (schedule), "step" (step), "text" in p.act (prompt), "text_tokens" (prompt).
ZImageInputs z_image_inputs(Graph& g, const ZImageConfig& c, const ZImageShape& s, nn::Precision p);

/// What the network predicts, picture minus noise, f32 [B',channels,h,w] (NCHW), not rounded. Where there are twice as
/// many texts as latents, the latents are used twice. Modulation of all blocks is of rate schedule; the text's refiner
/// and the tables of positions are of rate prompt. Error(Usage) for inputs that do not fit.
Expr z_image(const ZImageConfig& c, const ZImageInputs& in, nn::Precision p);
/// The network over z_image_inputs.
Expr z_image(Graph& g, const ZImageConfig& c, const ZImageShape& s, nn::Precision p);

/// Every tensor of the network.
WeightShapes z_image_weights(const ZImageConfig& c);

}  // namespace tenon
