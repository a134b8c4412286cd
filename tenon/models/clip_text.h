// The text tower of CLIP (transformers' CLIPTextModel): token and position embeddings, pre-norm transformer layers with
// causal attention, a final norm.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "tenon/models/weights.h"
#include "tenon/nn/scope.h"

namespace tenon {

/// The defaults are the text encoder of Stable Diffusion 1.5 (CLIP ViT-L/14).
struct ClipTextConfig {
  int64_t vocabulary = 49408;
  int64_t hidden = 768;
  int64_t mlp = 3072;
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t positions = 77;
  double eps = 1e-5;
  enum class Activation { QuickGelu, Gelu } activation = Activation::QuickGelu;
};

/// From transformers' config.json; absent keys take CLIPTextConfig's defaults. Error(Model) names `where`, key and
/// value for what is not implemented.
ClipTextConfig clip_text_config(const nlohmann::json& config, const std::string& where);
/// From names and shapes alone. They do not show the number of heads: 64 channels each if that divides, else 8 heads.
/// Error(Model) for another kind of text encoder.
ClipTextConfig detect_clip_text(const WeightShapes& weights, const std::string& where);

/// Hidden states [B,S,hidden] of `tokens` (i32 [B,S], S <= positions) after the final norm, skipping the last
/// `clip_skip` layers; stored as `out` (f32: not rounded). Error(Usage) for a clip_skip outside 0..layers-1.
Expr clip_text(const ClipTextConfig& c, const Expr& tokens, nn::Precision p, int64_t clip_skip = 0,
               DType out = DType::F32);
/// clip_text over the input "tokens", i32 [batch,length], of rate prompt.
Expr clip_text(Graph& g, const ClipTextConfig& c, int64_t batch, int64_t length, nn::Precision p, int64_t clip_skip = 0,
               DType out = DType::F32);

/// Every tensor of the text encoder.
WeightShapes clip_text_weights(const ClipTextConfig& c);

}  // namespace tenon
