#include "tenon/models/clip_text.h"

#include "tenon/expr/ops.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/weight_names.h"
#include "tenon/nn/attention.h"
#include "tenon/nn/linear.h"
#include "tenon/nn/norm.h"

namespace tenon {
namespace {

Expr activate(ClipTextConfig::Activation a, const Expr& x) {
  return a == ClipTextConfig::Activation::Gelu ? gelu(x) : quick_gelu(x);
}

Expr layer(const nn::Scope& s, const ClipTextConfig& c, const Expr& input) {
  const auto linear = [](const nn::Scope& at, const Expr& x, int64_t outputs) { return nn::linear(at, x, outputs); };
  const nn::Scope a = s / "self_attn";
  const Expr y = nn::layer_norm(s / "layer_norm1", input, c.eps);
  const Expr mixed = nn::attention(linear(a / "q_proj", y, c.hidden), linear(a / "k_proj", y, c.hidden),
                                   linear(a / "v_proj", y, c.hidden), c.heads, s.act(), nn::Mask::Causal);
  const Expr h = cast(linear(a / "out_proj", mixed, c.hidden) + input, s.act());
  const Expr up = linear(s / "mlp.fc1", nn::layer_norm(s / "layer_norm2", h, c.eps), c.mlp);
  return cast(linear(s / "mlp.fc2", cast(activate(c.activation, up), s.act()), c.hidden) + h, s.act());
}

}  // namespace

Expr clip_text(const ClipTextConfig& c, const Expr& tokens, nn::Precision p, int64_t clip_skip, DType out) {
  const Shape& shape = tokens.shape();
  TENON_CHECK(Usage, shape.rank() == 2 && shape[1] >= 1 && shape[1] <= c.positions, "clip_text")
      << "expected tokens [B,S] with S from 1 to " << c.positions << ", got " << shape.str();
  TENON_CHECK(Usage, clip_skip >= 0 && clip_skip < c.layers, "clip_text")
      << "clip skip " << clip_skip << " is outside 0.." << c.layers - 1;
  const nn::Scope s(tokens.graph(), p, "text_model");
  const Expr words = gather((s / "embeddings.token_embedding").weight("weight", {c.vocabulary, c.hidden}), tokens);
  const Expr places = (s / "embeddings.position_embedding").small("weight", {c.positions, c.hidden});
  Expr h = cast(words + slice(places, 0, 0, shape[1]), p.act);
  for (int64_t i = 0; i < c.layers - clip_skip; ++i) h = layer(s / "encoder.layers" / i, c, h);
  return cast(nn::layer_norm(s / "final_layer_norm", h, c.eps), out);
}

Expr clip_text(Graph& g, const ClipTextConfig& c, int64_t batch, int64_t length, nn::Precision p, int64_t clip_skip,
               DType out) {
  return clip_text(c, input(g, "tokens", DType::I32, {batch, length}, Rate::Prompt), p, clip_skip, out);
}

WeightShapes clip_text_weights(const ClipTextConfig& c) {
  Graph g;
  return weights_of(std::array{clip_text(g, c, 1, 1, nn::kF32)});
}

ClipTextConfig clip_text_config(const nlohmann::json& config, const std::string& where) {
  ConfigReader r(config, where);
  ClipTextConfig c;
  c.vocabulary = r.integer("vocab_size", 49408, 1, 1 << 24);
  c.hidden = r.integer("hidden_size", 512, 1, 1 << 16);
  c.mlp = r.integer("intermediate_size", 2048, 1, 1 << 18);
  c.layers = r.integer("num_hidden_layers", 12, 1, 1024);
  c.heads = r.integer("num_attention_heads", 8, 1, 4096);
  c.positions = r.integer("max_position_embeddings", 77, 1, 1 << 20);
  c.eps = r.number("layer_norm_eps", 1e-5, 0, 1);
  const std::string activation = r.name("hidden_act", "quick_gelu");
  if (activation != "quick_gelu" && activation != "gelu") r.refuse("hidden_act", "\"quick_gelu\" or \"gelu\"");
  c.activation = activation == "gelu" ? ClipTextConfig::Activation::Gelu : ClipTextConfig::Activation::QuickGelu;
  if (c.hidden % c.heads) r.refuse("num_attention_heads", "a divisor of hidden_size " + std::to_string(c.hidden));
  r.expect("model_type", {"clip_text_model"});
  r.ignore({"architectures", "attention_dropout", "bos_token_id", "dropout", "dtype", "eos_token_id",
            "initializer_factor", "initializer_range", "pad_token_id", "projection_dim", "torch_dtype",
            "transformers_version"});
  r.finish();
  return c;
}

ClipTextConfig detect_clip_text(const WeightShapes& weights, const std::string& where) {
  const WeightNames w(weights, where, "a CLIP text encoder");
  for (const char* name : {"positional_embedding", "transformer.resblocks.0.ln_1.weight"})
    w.refuse_if(w.has(name), name, "an OpenCLIP text encoder (Stable Diffusion 2.x, SDXL)");
  w.refuse_if(w.has("encoder.block.0.layer.0.SelfAttention.q.weight"), "encoder.block.0.layer.0.SelfAttention.q.weight",
              "a T5 text encoder");
  ClipTextConfig c;
  const Shape words = w.shape("text_model.embeddings.token_embedding.weight", 2);
  c.vocabulary = words[0];
  c.hidden = words[1];
  c.positions = w.shape("text_model.embeddings.position_embedding.weight", 2)[0];
  c.layers = w.count("text_model.encoder.layers.", ".layer_norm1.weight");
  c.mlp = w.shape("text_model.encoder.layers.0.mlp.fc1.weight", 2)[0];
  c.heads = c.hidden % 64 == 0 ? c.hidden / 64 : 8;
  w.refuse_if(c.hidden > 768, "text_model.embeddings.token_embedding.weight",
              "an OpenCLIP text encoder (Stable Diffusion 2.x, SDXL)");
  TENON_CHECK(Model, c.hidden % c.heads == 0, where)
      << "text_model.embeddings.token_embedding.weight: width " << c.hidden << " is not a multiple of " << c.heads
      << " heads; give the number of heads in a config.json";
  return c;
}

}  // namespace tenon
