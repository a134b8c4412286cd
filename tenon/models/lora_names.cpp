#include "tenon/models/lora_names.h"

#include <algorithm>
#include <array>
#include <set>

#include "tenon/models/stable_diffusion.h"
#include "tenon/models/stable_diffusion_names.h"
#include "tenon/models/z_image.h"

namespace tenon {
namespace {

constexpr std::string_view kWeight = ".weight", kPeft = "base_model_model_", kTextModel = "text_model.";
constexpr int kMaxLdmBlocks = 12;  // on the way down, for four levels; as many on the way up

std::string flattened(std::string_view name) {
  std::string out(name);
  std::ranges::replace(out, '.', '_');
  return out;
}

bool replace_end(std::string& name, std::string_view end, std::string_view with) {
  if (!name.ends_with(end)) return false;
  name.replace(name.size() - end.size(), end.size(), with);
  return true;
}

// Prefixes of the denoising network; tools use the same ones for all architectures.
std::vector<std::string> denoiser_prefixes(const std::string& component) {
  std::vector<std::string> out{"", "lora_unet_", "lycoris_", "diffusion_model.", "model.diffusion_model."};
  for (const std::string& own : {component + ".", "lora_" + component + "_"})
    if (std::ranges::find(out, own) == out.end()) out.push_back(own);
  return out;
}
const std::vector<std::string> kTextPrefixes{"text_encoder.", "lora_te_", "lora_te1_"};

}  // namespace

void LoraNames::add(const std::string& component, const WeightShapes& weights,
                    const std::vector<std::string>& prefixes) {
  auto& known = flat_[component];  // even if it stays empty
  for (const auto& [tensor, shape] : weights) {
    const bool table = tensor.ends_with("_embedding.weight") || tensor.ends_with("embed_tokens.weight");
    if (!tensor.ends_with(kWeight) || shape.rank() < 2 || table) continue;
    const std::string layer = tensor.substr(0, tensor.size() - kWeight.size());
    known[flattened(layer)] = {{component, tensor, shape}};
    layers_[component].push_back(layer);
  }
  for (const std::string& p : prefixes) prefixes_.push_back({flattened(p), component});
  std::ranges::stable_sort(prefixes_, std::ranges::greater(), [](const Prefix& p) { return p.text.size(); });
}

void LoraNames::alias(const std::string& component, const std::string& name, const std::vector<std::string>& layers) {
  auto& known = flat_[component];
  std::vector<LoraTarget> targets;
  int64_t row = 0;
  for (const std::string& layer : layers) {
    const auto it = known.find(flattened(layer));
    if (it == known.end() || it->second.empty()) return;
    LoraTarget target = it->second.front();
    target.first_row = row;
    target.fused = layers.size() > 1;
    row += target.shape[0];
    targets.push_back(std::move(target));
  }
  known.emplace(flattened(name), std::move(targets));
}

void LoraNames::add_unread(const std::string& component, const std::string& name) {
  flat_[component].try_emplace(flattened(name));
}

const std::vector<LoraTarget>* LoraNames::find(std::string_view name) const {
  std::string flat = flattened(name);
  if (flat.starts_with(kPeft)) flat.erase(0, kPeft.size());
  for (const Prefix& p : prefixes_) {
    if (!flat.starts_with(p.text)) continue;
    const auto& known = flat_.at(p.component);
    if (const auto it = known.find(flat.substr(p.text.size())); it != known.end()) return &it->second;
  }
  return nullptr;
}

std::vector<std::string> LoraNames::layers(const std::string& component) const {
  const auto it = layers_.find(component);
  return it == layers_.end() ? std::vector<std::string>() : it->second;
}

std::map<std::string, WeightShapes> LoraNames::matrices() const {
  std::map<std::string, WeightShapes> out;
  for (const auto& [component, layers] : flat_)
    for (const auto& [name, targets] : layers)
      for (const LoraTarget& t : targets)
        if (t.shape.numel() == t.shape[0] * t.shape[1]) out[component][t.tensor] = t.shape;
  return out;
}

std::string LoraNames::component_of(std::string_view prefix) const {
  const std::string wanted = flattened(prefix) + "_";
  const auto it = std::ranges::find(prefixes_, wanted, &Prefix::text);
  return it == prefixes_.end() ? "" : it->component;
}

namespace {

// Adds the UNet's layers by single-file names, as far as the translation knows them.
void add_ldm_names(LoraNames& names) {
  std::set<std::string> tails{"op", "conv", "in_layers.2", "emb_layers.1", "out_layers.3", "skip_connection"};
  const std::vector<std::string> layers = names.layers("unet");
  for (const std::string& layer : layers)
    if (const size_t at = layer.find(".attentions."); at != layer.npos)
      tails.insert(layer.substr(layer.find('.', at + std::string_view(".attentions.").size()) + 1));
  const auto add = [&](const std::string& ldm) {
    std::string tensor = unet_name_from_ldm(ldm + std::string(kWeight));
    if (replace_end(tensor, kWeight, "")) names.alias("unet", ldm, {tensor});
  };
  for (const char* end : {"time_embed.0", "time_embed.2", "out.2"}) add(end);
  for (int i = 0; i < kMaxLdmBlocks; ++i)
    for (const char* path : {"input_blocks.", "output_blocks."})
      for (const char* part : {".0.", ".1.", ".2."})
        for (const std::string& tail : tails) add(path + std::to_string(i) + part + tail);
  add("input_blocks.0.0");
  for (const char* part : {"middle_block.0.", "middle_block.1.", "middle_block.2."})
    for (const std::string& tail : tails) add(part + tail);
}

}  // namespace

LoraNames stable_diffusion_lora_names(const StableDiffusionConfig& c) {
  auto weights = expected_weights(c);
  LoraNames names;
  names.add("unet", weights.at("unet"), denoiser_prefixes("unet"));
  names.add("text_encoder", weights.at("text_encoder"), kTextPrefixes);
  for (const std::string& layer : names.layers("unet"))  // names of older diffusers' attention processors
    if (std::string old = layer; replace_end(old, ".to_out.0", ".to_out")) names.alias("unet", old, {layer});
  static constexpr std::array<std::pair<const char*, const char*>, 4> kOldText = {
      {{".q_proj", ".to_q"}, {".k_proj", ".to_k"}, {".v_proj", ".to_v"}, {".out_proj", ".to_out"}}};
  for (const std::string& layer : names.layers("text_encoder")) {
    std::string bare = layer.substr(layer.starts_with(kTextModel) ? kTextModel.size() : 0);
    names.alias("text_encoder", bare, {layer});  // names of newer transformers
    for (const auto& [now, before] : kOldText)
      if (std::string old = layer; replace_end(old, now, before)) names.alias("text_encoder", old, {layer});
  }
  add_ldm_names(names);
  return names;
}

LoraNames z_image_lora_names(const ZImageConfig& c, const WeightShapes& text, const WeightShapes& whole_text) {
  LoraNames names;
  names.add("transformer", z_image_weights(c), denoiser_prefixes("transformer"));
  names.add("text_encoder", text, kTextPrefixes);
  for (const std::string& layer : names.layers("transformer")) {
    std::string block = layer;
    if (!replace_end(block, ".to_out.0", "")) continue;
    for (const char* old : {".out", ".to_out"}) names.alias("transformer", block + old, {layer});
    names.alias("transformer", block + ".qkv", {block + ".to_q", block + ".to_k", block + ".to_v"});
  }
  for (const std::string& layer : names.layers("transformer"))  // "all_x_embedder.2-1": there is only one patch size
    if (layer.starts_with("all_")) {
      std::string old = layer.substr(4);
      if (const size_t at = old.find(".2-1"); at != old.npos) names.alias("transformer", old.erase(at, 4), {layer});
    }
  for (const std::string& layer : names.layers("text_encoder"))
    if (layer.starts_with("model.")) names.alias("text_encoder", layer.substr(6), {layer});
  for (const auto& [tensor, shape] : whole_text) {
    std::string layer = tensor;
    if (text.contains(tensor) || !replace_end(layer, kWeight, "")) continue;
    names.add_unread("text_encoder", layer);
    if (layer.starts_with("model.")) names.add_unread("text_encoder", layer.substr(6));
  }
  return names;
}

}  // namespace tenon
