// Configurations of decoder language models: from config.json and GGUF metadata, from weights, and presets.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tenon/core/error.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/decoder.h"
#include "tenon/models/weight_names.h"

namespace tenon {
namespace {
using nlohmann::json;

constexpr int64_t kMaxWidth = 1 << 17, kMaxLayers = 4096, kMaxTokens = int64_t{1} << 24;

double positive(ConfigReader& r, const char* key) {
  if (!r.has(key)) r.refuse(key, "a value");
  return r.number(key, 0, 1e-6, 1e9);
}

// An optional setting for which 0 or null stand for the default, as in Python's `value or default`.
double or_default(ConfigReader& r, const char* key, double fallback) {
  const double value = r.has(key) ? r.number(key, 0, 0, 1e9) : 0;
  return value > 0 ? value : fallback;
}

// YaRN's amplitude where none is given.
double yarn_amplitude(double factor, ConfigReader& r) {
  const auto amplitude = [&](double by) { return factor <= 1 ? 1.0 : 0.1 * by * std::log(factor) + 1; };
  const double numerator = or_default(r, "mscale", 0), denominator = or_default(r, "mscale_all_dim", 0);
  return numerator > 0 && denominator > 0 ? amplitude(numerator) / amplitude(denominator) : amplitude(1);
}

nn::RotaryScaling read_yarn(const DecoderConfig& c, ConfigReader& r, double length) {
  const double factor = positive(r, "factor");
  const double given = r.has("attention_factor") ? positive(r, "attention_factor") : 0;
  if (c.theta <= 1) r.refuse("rope_theta", "a number above 1 with \"yarn\"");
  // The pair, as a real number, that turns `turns` times in `length` positions.
  const auto pair_of = [&](double turns) {
    return static_cast<double>(c.head_width) * std::log(length / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(c.theta));
  };
  double first = pair_of(or_default(r, "beta_fast", 32)), last = pair_of(or_default(r, "beta_slow", 1));
  if (r.flag("truncate", true)) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(c.head_width - 1));
  return nn::RotaryScaling::between_pairs(factor, first, last, given > 0 ? given : yarn_amplitude(factor, r));
}

// Speeds that do not depend on the text's length. As in transformers, an original length beside the parameters goes
// first, and without any it is the longest context.
nn::RotaryScaling read_scaling(const DecoderConfig& c, ConfigReader& outer, ConfigReader& inner) {
  const char* key = inner.present("rope_type") ? "rope_type" : "type";
  inner.expect(key, {"default", "linear", "llama3", "yarn"});
  const std::string type = inner.name(key, "default");
  if (type == "default") return {};
  inner.expect("partial_rotary_factor", {1, 1.0});
  if (type == "linear") return {.factor = positive(inner, "factor")};
  constexpr const char* kLength = "original_max_position_embeddings";
  ConfigReader& from = outer.present(kLength) ? outer : inner;
  const double length = from.number(kLength, static_cast<double>(c.positions), 1, static_cast<double>(kMaxTokens));
  if (type == "yarn") return read_yarn(c, inner, length);
  const double factor = positive(inner, "factor"), slow = positive(inner, "low_freq_factor");
  const double fast = positive(inner, "high_freq_factor");
  if (fast <= slow) inner.refuse("high_freq_factor", "more than the low_freq_factor");
  return nn::RotaryScaling::by_turns(factor, slow, fast, length);
}

// The base of rotary positions: a flat rope_theta, or rope_parameters, which also has a rope_type ("type" in older
// files). As in transformers, rope_scaling replaces rope_parameters.
void read_rotary(DecoderConfig& c, ConfigReader& r, const json& config, const std::string& where) {
  c.theta = r.number("rope_theta", 1e4, 1, 1e12);
  r.expect("partial_rotary_factor", {1, 1.0});
  const char* key = r.has("rope_scaling") && !config["rope_scaling"].empty() ? "rope_scaling" : "rope_parameters";
  r.ignore({"rope_scaling", "rope_parameters"});
  if (!r.has(key)) return;
  ConfigReader inner(config[key], where + " " + key);
  for (const auto& [name, value] : config[key].items())
    if (value.is_object()) inner.refuse(name, "no object (parameters by type of layer are not implemented)");
  c.theta = inner.number("rope_theta", c.theta, 1, 1e12);
  c.rotary = read_scaling(c, r, inner);
}

// Llama has no windows, but without layer_types the cache of transformers applies a sliding_window after the prompt. It
// does so even if use_sliding_window is false, which leaves no doubt about the model.
void refuse_window_of_llama(const DecoderConfig& c, ConfigReader& r) {
  if (c.family != "llama" || !r.has("sliding_window") || r.has("layer_types") || r.has("use_sliding_window")) return;
  const int64_t window = r.integer("sliding_window", 0, 1, kMaxTokens);
  if (window < c.positions)
    r.refuse("sliding_window", "none below max_position_embeddings, " + std::to_string(c.positions) +
                                   "; for no window, set it to null or use_sliding_window to false");
}

void read_attention(DecoderConfig& c, ConfigReader& r, const std::string& where) {
  c.heads = r.integer("num_attention_heads", c.heads, 1, kMaxWidth);
  c.key_heads = r.has("num_key_value_heads") ? r.integer("num_key_value_heads", 0, 1, kMaxWidth) : c.heads;
  r.ignore({"num_key_value_heads"});
  TENON_CHECK(Model, c.heads % c.key_heads == 0, where)
      << c.key_heads << " key heads do not divide the " << c.heads << " query heads";
  const bool given = r.has("head_dim");
  TENON_CHECK(Model, given || c.family == "qwen3" || c.width % c.heads == 0, where)
      << c.heads << " heads do not divide the width " << c.width;
  c.head_width = given ? r.integer("head_dim", 0, 2, kMaxWidth) : c.family == "qwen3" ? 128 : c.width / c.heads;
  r.ignore({"head_dim"});
  TENON_CHECK(Model, c.head_width % 2 == 0, where) << "expected an even head width, got " << c.head_width;
  const bool attention_bias = c.family != "qwen2" && r.flag("attention_bias", false);
  c.qkv_bias = c.family == "qwen2" || attention_bias;
  c.output_bias = attention_bias;
  c.head_norm = c.family == "qwen3";
  r.expect("use_sliding_window", {false});
  refuse_window_of_llama(c, r);
  r.expect("is_causal", {true, nullptr});
  for (const std::string& type : r.has("layer_types") ? r.names("layer_types", {}) : std::vector<std::string>{})
    if (type != "full_attention") r.refuse("layer_types", "\"full_attention\" alone (nothing else is implemented)");
}

// Everything that all Qwen3 have alike, beside these sizes.
DecoderConfig qwen3(DecoderConfig sizes) {
  sizes.family = "qwen3";
  sizes.positions = 40960;
  sizes.qkv_bias = false;
  sizes.head_norm = true;
  return sizes;
}

DecoderConfig smollm2_135m() {
  return {.family = "llama",
          .vocabulary = 49152,
          .width = 576,
          .hidden = 1536,
          .layers = 30,
          .heads = 9,
          .key_heads = 3,
          .head_width = 64,
          .positions = 8192,
          .theta = 1e5,
          .eps = 1e-5,
          .qkv_bias = false};
}

}  // namespace

int64_t DecoderConfig::cache_bytes(DType act) const { return 2 * layers * key_heads * head_width * size_of(act); }

DecoderConfig read_decoder_config(const json& config, const std::string& where) {
  ConfigReader r(config, where);
  DecoderConfig c;
  for (const char* key :
       {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"})
    if (!r.has(key)) r.refuse(key, "a value");
  r.expect("model_type", {"llama", "qwen2", "qwen3"});
  c.family = r.name("model_type", c.family);
  c.vocabulary = r.integer("vocab_size", c.vocabulary, 1, kMaxTokens);
  c.width = r.integer("hidden_size", c.width, 1, kMaxWidth);
  c.hidden = r.integer("intermediate_size", c.hidden, 1, 8 * kMaxWidth);
  c.layers = r.integer("num_hidden_layers", c.layers, 1, kMaxLayers);
  c.positions = r.integer("max_position_embeddings", c.family == "llama" ? 2048 : c.positions, 1, kMaxTokens - 1);
  c.eps = r.number("rms_norm_eps", 1e-6, 0, 1);
  c.tied = r.flag("tie_word_embeddings", false);
  c.mlp_bias = c.family == "llama" && r.flag("mlp_bias", false);
  r.expect("hidden_act", {"silu", "swish"});   // two names of one function
  r.expect("quantization_config", {nullptr});  // has scales beside the weights, which would be ignored
  read_attention(c, r, where);
  read_rotary(c, r, config, where);
  return c;
}

DecoderConfig detect_qwen3(const WeightShapes& weights, const std::string& where) {
  const WeightNames w(weights, where, "a Qwen3 text encoder");
  constexpr const char *kQueries = "model.layers.0.self_attn.q_proj.weight", *kNorm = ".self_attn.q_norm.weight";
  const Shape embedding = w.shape("model.embed_tokens.weight", 2);
  const int64_t layers = w.count("model.layers.", kNorm), head = w.shape("model.layers.0" + std::string(kNorm), 1)[0];
  const int64_t queries = w.shape(kQueries, 2)[0], keys = w.shape("model.layers.0.self_attn.k_proj.weight", 2)[0];
  const int64_t hidden = w.shape("model.layers.0.mlp.gate_proj.weight", 2)[0];
  w.refuse_if(embedding.numel() == 0 || hidden == 0, "model.embed_tokens.weight", "an empty network");
  const bool whole = head >= 2 && head % 2 == 0 && queries >= head && keys >= head && queries % head == 0 &&
                     keys % head == 0 && queries % keys == 0;
  w.refuse_if(!whole, kQueries,
              std::to_string(queries) + " query rows and " + std::to_string(keys) + " key rows in heads of " +
                  std::to_string(head));
  return qwen3({.vocabulary = embedding[0],
                .width = embedding[1],
                .hidden = hidden,
                .layers = layers,
                .heads = queries / head,
                .key_heads = keys / head,
                .head_width = head});
}

const std::vector<DecoderPreset>& decoder_presets() {
  static const std::vector<DecoderPreset> all = {
      {"qwen2.5-0.5b", "Qwen2.5-0.5B: 494 M parameters", DecoderConfig()},
      {"qwen3-0.6b", "Qwen3-0.6B: 596 M parameters",
       qwen3({.width = 1024, .hidden = 3072, .layers = 28, .heads = 16, .key_heads = 8, .head_width = 128})},
      {"qwen3-4b", "Qwen3-4B: 4022 M parameters",
       qwen3({.width = 2560, .hidden = 9728, .layers = 36, .heads = 32, .key_heads = 8, .head_width = 128})},
      {"smollm2-135m", "SmolLM2-135M: 135 M parameters", smollm2_135m()}};
  return all;
}

}  // namespace tenon
