// The denoising network of Z-Image (diffusers' ZImageTransformer2DModel): image and text tokens form one stream through
// transformer blocks, modulated by time, with norms before and after every layer.
//
// Weights have diffusers' names ("layers.0.attention.to_q.weight").
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
  int64_t text_width = 2560;  ///< of the text features
  double eps = 1e-5;          ///< of all norms but those of queries and keys (1e-5) and the last one (1e-6)
  double theta = 256, time_scale = 1000;
  std::array<int64_t, 3> axis_depths = {32, 48, 48};       ///< rotary channels of a head: frame, row, column
  std::array<int64_t, 3> axis_lengths = {1536, 512, 512};  ///< positions seen in training

  int64_t head_width() const { return width / heads; }
  int64_t hidden() const { return static_cast<int64_t>(static_cast<double>(width) / 3 * 8); }
  int64_t condition() const { return width < 256 ? width : 256; }  ///< elements of the time embedding
};

/// Latents per token along a side.
inline constexpr int64_t kZImagePatch = 2;
/// Sequences of image tokens and of text tokens are padded to multiples of this.
inline constexpr int64_t kZImageSequence = 32;
constexpr int64_t padded_sequence(int64_t n) { return (n + kZImageSequence - 1) / kZImageSequence * kZImageSequence; }

/// From diffusers' config.json; absent keys take ZImageTransformer2DModel's defaults. Error(Model) names `where`, key
/// and value for what is not implemented (other patch sizes, features of pictures).
ZImageConfig z_image_config(const nlohmann::json& config, const std::string& where);
/// From names and shapes alone; everything else, including how a head is divided among the axes, is as published.
/// Error(Model) for another kind.
ZImageConfig detect_z_image(const WeightShapes& weights, const std::string& where);

/// The sizes of one evaluation.
struct ZImageShape {
  int64_t batch = 1;                  ///< images
  bool guided = false;                ///< the network runs twice the batch: positive prompts first, then negative ones
  int64_t height = 128, width = 128;  ///< of the latents, even
  int64_t tokens = 32;                ///< rows of the longest text, a multiple of kZImageSequence
  bool equal_texts = true;            ///< all texts have `tokens` rows after padding, so nothing is masked
  int64_t timesteps = 1;              ///< of the schedule
  int64_t sequences() const { return guided ? 2 * batch : batch; }
};

/// The network's inputs.
struct ZImageInputs {
  Expr latents;             ///< f32 [B,channels,h,w] (NCHW)
  Expr times;               ///< f32 [T], 0 (noise) to 1 (picture)
  Expr step;                ///< i32 scalar: index into times; unset: T = B', one time per image
  Expr text;                ///< [B',S,text_width]; rows after a text's last token are not read; B' = B or 2B
  Expr text_tokens;         ///< i32 [B'], number of tokens of each text, 1..S
  bool equal_texts = true;  ///< as in ZImageShape
};
/// Inputs "latents" (rate step), "times" (schedule), "step" (step), "text" in p.act (prompt), "text_tokens" (prompt).
ZImageInputs z_image_inputs(Graph& g, const ZImageConfig& c, const ZImageShape& s, nn::Precision p);

/// The network's prediction, picture minus noise, f32 [B',channels,h,w] (NCHW), not rounded. If there are twice as many
/// texts as latents, the latents are used twice. The modulation of all blocks has rate schedule; the text refiner and
/// the position tables have rate prompt. Error(Usage) for inputs that do not fit.
Expr z_image(const ZImageConfig& c, const ZImageInputs& in, nn::Precision p);
/// The network over z_image_inputs.
Expr z_image(Graph& g, const ZImageConfig& c, const ZImageShape& s, nn::Precision p);

/// Every tensor of the network.
WeightShapes z_image_weights(const ZImageConfig& c);

}  // namespace tenon
