#include "tenon/train/lora_layers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/json.h"
#include "tenon/io/safetensors.h"
#include "tenon/nn/low_rank.h"

namespace tenon::train {
namespace {

constexpr std::string_view kLayerWeight = ".weight";
constexpr std::array<const char*, 3> kFormats = {"diffusers", "comfy", "kohya"};

// The linear layer of a weight; empty if it is not of one.
std::string_view layer_of(const std::string& name, const Shape& shape) {
  const bool table = name.ends_with("embedding.weight") || name.ends_with("embed_tokens.weight");
  if (!name.ends_with(kLayerWeight) || shape.rank() != 2 || table) return {};
  return std::string_view(name).substr(0, name.size() - kLayerWeight.size());
}

bool is(std::string_view layer, const std::string& target) {
  return target == kAllLinear || layer == target || layer.ends_with("." + target);
}

// A layer's name within its block: "to_q", "to_out.0".
std::string ending_of(std::string_view layer) {
  size_t dot = layer.rfind('.');
  if (dot != layer.npos && std::isdigit(static_cast<unsigned char>(layer.back()))) dot = layer.rfind('.', dot - 1);
  return std::string(dot == layer.npos ? layer : layer.substr(dot + 1));
}

}  // namespace

std::vector<std::string> attention_targets() { return {"to_q", "to_k", "to_v", "to_out.0"}; }

std::set<std::string> target_weights(const WeightShapes& model, const std::vector<std::string>& targets) {
  TENON_CHECK(Usage, !targets.empty(), "targets") << "no layers are named";
  std::set<std::string> out, endings;
  for (const std::string& target : targets) {
    bool any = false;
    for (const auto& [name, shape] : model) {
      const std::string_view layer = layer_of(name, shape);
      if (layer.empty()) continue;
      endings.insert(ending_of(layer));
      if (!is(layer, target)) continue;
      any = true;
      out.insert(name);
    }
    const std::vector<std::string> known(endings.begin(), endings.end());
    TENON_CHECK(Usage, any, "targets") << "no linear layer is named '" << shown(target) << "'; expected "
                                       << shown(joined(known), 300);
  }
  return out;
}

WeightShapes branch_shapes(const WeightShapes& model, const std::set<std::string>& weights, int64_t rank) {
  WeightShapes out;
  for (const std::string& name : weights) {
    const auto at = model.find(name);
    TENON_CHECK(Usage, at != model.end() && at->second.rank() == 2, "targets")
        << "'" << shown(name) << "' is not the weight of a linear layer";
    const Shape& s = at->second;
    out[nn::side_down(name)] = {rank, s[1]};
    out[nn::side_up(name)] = {s[0], rank};
  }
  return out;
}

std::vector<std::string> lora_format_names() { return {kFormats.begin(), kFormats.end()}; }

LoraFormat lora_format_of(const std::string& name) {
  const auto* const it = std::ranges::find(kFormats, name);
  TENON_CHECK(Usage, it != kFormats.end(), "format")
      << "'" << shown(name) << "' is none of " << joined(lora_format_names());
  return static_cast<LoraFormat>(it - kFormats.begin());
}

std::map<std::string, std::string> lora_metadata(const std::string& component, int64_t rank, double alpha,
                                                 const std::vector<std::string>& targets) {
  nlohmann::ordered_json notes;
  const auto note = [&](const char* key, const nlohmann::ordered_json& value) { notes[component + "." + key] = value; };
  note("r", rank);
  note("lora_alpha", alpha);
  note("lora_dropout", 0.0);
  note("bias", "none");
  if (std::ranges::find(targets, kAllLinear) != targets.end())
    note("target_modules", kAllLinear);
  else
    note("target_modules", targets);
  note("use_rslora", false);
  note("use_dora", false);
  return {{"format", "pt"}, {"lora_adapter_metadata", json_text(notes)}};
}

void convert_lora(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& component,
                  double alpha, LoraFormat format) {
  const SafetensorsFile file = SafetensorsFile::open(from);
  const bool flat = format == LoraFormat::Kohya || (format == LoraFormat::Comfy && component == "unet");
  const std::string prefix = component + ".";
  const auto value = static_cast<float>(alpha);
  const auto alpha_bytes = std::as_bytes(std::span(&value, 1));
  int64_t rank = 0;
  std::vector<TensorData> out;
  for (const auto& [name, t] : file.tensors()) {
    const bool down = name.ends_with(nn::kSideDown);
    const bool whole = name.size() > prefix.size() + nn::kSideDown.size() && t.shape.rank() == 2;
    TENON_CHECK(Model, whole && name.starts_with(prefix) && (down || name.ends_with(nn::kSideUp)), file.name())
        << "'" << shown(name) << "' is not a factor of a LoRA of the " << component;
    std::string layer = name.substr(prefix.size(), name.size() - prefix.size() - nn::kSideDown.size());
    if (flat) std::ranges::replace(layer, '.', '_');
    layer.insert(0, flat ? "lora_unet_" : "diffusion_model.");
    const std::string end =
        flat ? (down ? ".lora_down.weight" : ".lora_up.weight") : std::string(down ? nn::kSideDown : nn::kSideUp);
    out.push_back({layer + end, t.dtype, t.shape, std::span(t.data, t.size)});
    if (!down) continue;
    rank = t.shape[0];
    out.push_back({layer + ".alpha", DType::F32, {}, alpha_bytes});
  }
  write_safetensors(to, out,
                    {{"format", "pt"},
                     {"ss_network_module", "networks.lora"},
                     {"ss_network_dim", std::to_string(rank)},
                     {"ss_network_alpha", number_text(alpha)}});
}

}  // namespace tenon::train
