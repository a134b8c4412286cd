// Names of three checkpoint layouts, and dimensions inferred from shapes.
#include <algorithm>
#include <array>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/vit.h"
#include "tenon/models/weight_names.h"

namespace tenon {
namespace {

using Rule = std::pair<std::string_view, std::string_view>;  // a stored beginning -> timm's

constexpr std::array<Rule, 12> kWhole = {{{"embeddings.cls_token", "cls_token"},
                                          {"embeddings.position_embeddings", "pos_embed"},
                                          {"embeddings.register_tokens", "reg_token"},
                                          {"embeddings.patch_embeddings.projection.", "patch_embed.proj."},
                                          {"layernorm.", "norm."},
                                          {"register_tokens", "reg_token"},
                                          {"cls_token", "cls_token"},
                                          {"pos_embed", "pos_embed"},
                                          {"reg_token", "reg_token"},
                                          {"patch_embed.proj.", "patch_embed.proj."},
                                          {"norm.weight", "norm.weight"},
                                          {"norm.bias", "norm.bias"}}};
constexpr std::array<Rule, 24> kInBlock = {{{"attention.attention.query.", "attn.query."},
                                            {"attention.attention.key.", "attn.key."},
                                            {"attention.attention.value.", "attn.value."},
                                            {"attention.output.dense.", "attn.proj."},
                                            {"attention.q_proj.", "attn.query."},
                                            {"attention.k_proj.", "attn.key."},
                                            {"attention.v_proj.", "attn.value."},
                                            {"attention.o_proj.", "attn.proj."},
                                            {"layer_scale1.lambda1", "ls1.gamma"},
                                            {"layer_scale2.lambda1", "ls2.gamma"},
                                            {"mlp.weights_in.", "mlp.fc1."},
                                            {"mlp.weights_out.", "mlp.fc2."},
                                            {"mlp.gate_proj.", "mlp.gate."},
                                            {"mlp.up_proj.", "mlp.up."},
                                            {"mlp.down_proj.", "mlp.fc2."},
                                            {"mlp.w12.", "mlp.fc1."},
                                            {"mlp.w3.", "mlp.fc2."},
                                            {"mlp.fc1.", "mlp.fc1."},
                                            {"mlp.fc2.", "mlp.fc2."},
                                            {"attn.qkv.", "attn.qkv."},
                                            {"attn.proj.", "attn.proj."},
                                            {"norm1.", "norm1."},
                                            {"norm2.", "norm2."},
                                            {"ls", "ls"}}};

template <size_t N>
std::string replaced(std::string_view name, const std::array<Rule, N>& rules) {
  for (const auto& [from, to] : rules)
    if (name.starts_with(from)) return std::string(to).append(name.substr(from.size()));
  return {};
}

// Removes and returns a leading number with its dot, such as "12."; empty if there is none.
std::string_view number_of(std::string_view& name) {
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  if (digits == 0 || digits == name.size() || name[digits] != '.') return {};
  const std::string_view number = name.substr(0, digits);
  name.remove_prefix(digits + 1);
  return number;
}

std::string_view without_prefix(std::string_view name) {
  constexpr std::array<std::string_view, 5> kPrefixes = {"module.", "backbone.", "dinov2_with_registers.", "dinov2.",
                                                         "model."};
  for (const std::string_view p : kPrefixes)
    if (name.starts_with(p)) name.remove_prefix(p.size());
  return name;
}

// Whether a tensor belongs to a block: there, none is idle.
bool in_block(std::string_view stored) {
  const std::string_view name = without_prefix(stored);
  return name.starts_with("blocks") || name.starts_with("encoder.layer.");
}

// The integer square root of a square of at least 1; 0 for anything else.
int64_t root_of(int64_t n) {
  if (n < 1) return 0;
  const auto r = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(n))));
  return r * r == n ? r : 0;
}

VitSource source_of(const WeightShapes& stored) {
  bool original = false;
  for (const auto& [name, shape] : stored) {
    const std::string_view bare = without_prefix(name);
    if (bare.starts_with("embeddings.")) return VitSource::HuggingFace;
    original = original || bare == "mask_token" || bare == "register_tokens" || bare.find("mlp.w12.") != bare.npos;
  }
  return original ? VitSource::Original : VitSource::Timm;
}

// Reads the side of the position table, and whether it begins with the class token's position.
void read_positions(VitConfig& c, const WeightNames& w, const std::string& where) {
  const int64_t rows = w.shape("pos_embed", 3)[1];
  c.class_position = root_of(rows) == 0;
  c.grid = root_of(c.class_position ? rows - 1 : rows);
  TENON_CHECK(Model, c.grid > 0, where)
      << "tensor 'pos_embed': expected a square grid of positions, with or without a class token, found " << rows
      << " rows";
}

void read_block(VitConfig& c, const WeightNames& w) {
  const std::string first = "blocks.0.";
  c.split_qkv = w.has(first + "attn.query.weight");
  c.split_gate = w.has(first + "mlp.gate.weight");
  c.layer_scale = w.has(first + "ls1.gamma");
  c.hidden = w.shape(first + "mlp.fc2.weight", 2)[1];
  c.gated = c.split_gate || w.shape(first + "mlp.fc1.weight", 2)[0] == 2 * c.hidden;
}

// Shapes do not show the number of heads. Heads of the published networks are 64 wide; no other width is assumed.
void read_config(VitConfig& c, const nlohmann::json& config, const std::string& where) {
  constexpr int64_t kHeadWidth = 64;
  c.heads = c.width % kHeadWidth == 0 ? c.width / kHeadWidth : 0;
  if (config.is_object()) {
    ConfigReader r(config, where + " config.json");
    c.heads = r.integer("num_attention_heads", c.heads, 1, 4096);
    c.eps = r.number("layer_norm_eps", c.eps, 0, 1);
    r.expect("hidden_act", {"gelu"});
    r.expect("qkv_bias", {true});
    r.expect("num_channels", {3});
    r.expect("model_type", {"dinov2", "dinov2_with_registers"});
  }
  TENON_CHECK(Model, c.heads > 0, where) << "the width " << c.width << " is not a multiple of " << kHeadWidth
                                         << ", so the number of heads is not known: config.json must give "
                                            "num_attention_heads";
  TENON_CHECK(Model, c.width % c.heads == 0, where)
      << c.heads << " heads do not divide the width " << c.width << "; config.json must give num_attention_heads";
}

}  // namespace

std::string vit_name(const std::string& stored) {
  std::string_view name = without_prefix(stored);
  for (const std::string_view blocks : {"blocks.", "encoder.layer."}) {
    if (!name.starts_with(blocks)) continue;
    name.remove_prefix(blocks.size());
    std::string_view index = number_of(name);
    if (const std::string_view inner = number_of(name); !inner.empty()) index = inner;  // blocks.<chunk>.<index>
    const std::string rest = replaced(name, kInBlock);
    if (index.empty() || rest.empty()) return {};
    return std::string("blocks.").append(index).append(".").append(rest);
  }
  return replaced(name, kWhole);
}

bool is_vit(const WeightShapes& stored) {
  bool token = false, filter = false;
  for (const auto& [name, shape] : stored) {
    const std::string timm = vit_name(name);
    token = token || timm == "cls_token";
    filter = filter || (timm == "patch_embed.proj.weight" && shape.rank() == 4);
  }
  return token && filter;
}

VitConfig detect_vit(const WeightShapes& stored, const nlohmann::json& config, const std::string& where) {
  WeightShapes named;
  for (const auto& [name, shape] : stored) {
    const std::string timm = vit_name(name);
    TENON_CHECK(Model, !timm.empty() || !in_block(name), where)
        << "the network has no tensor '" << shown(name) << "'; ignoring that would give wrong features";
    TENON_CHECK(Model, timm.empty() || named.emplace(timm, shape).second, where)
        << "two tensors map to '" << shown(timm) << "'; one is '" << shown(name) << "'";
  }
  const WeightNames w(named, where, "a vision transformer");
  VitConfig c;
  const Shape filter = w.shape("patch_embed.proj.weight", 4);
  c.width = filter[0];
  c.patch = filter[2];
  TENON_CHECK(Model, filter[1] == 3 && filter[2] == filter[3] && filter.numel() > 0, where)
      << "tensor 'patch_embed.proj.weight': expected filters [width,3,p,p], found " << filter.str();
  c.depth = w.count("blocks.", ".norm1.weight");
  c.registers = w.has("reg_token") ? w.shape("reg_token", 3)[1] : 0;
  c.source = source_of(stored);
  read_positions(c, w, where);
  read_block(c, w);
  read_config(c, config, where);
  const bool antialias = c.source == VitSource::Timm || w.has("reg_token");  // also a table of no registers
  c.resample = antialias                         ? VitResample::Antialias
               : c.source == VitSource::Original ? VitResample::PlainOffset
                                                 : VitResample::Plain;
  return c;
}

}  // namespace tenon
