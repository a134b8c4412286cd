#include "tenon/models/registry.h"

#include <map>

#include "tenon/core/error.h"

namespace tenon {
namespace {
std::map<std::string, ModelPreset, std::less<>>& presets() {
  static std::map<std::string, ModelPreset, std::less<>> all;
  return all;
}
}  // namespace

RegisterModel::RegisterModel(ModelPreset preset) {
  const std::string name = preset.name;
  TENON_CHECK(Internal, presets().emplace(name, std::move(preset)).second, "models")
      << "two presets named '" << name << "'";
}

std::vector<const ModelPreset*> model_presets() {
  std::vector<const ModelPreset*> out;
  for (const auto& [name, preset] : presets()) out.push_back(&preset);
  return out;
}

const ModelPreset& model_preset(std::string_view name) {
  const auto it = presets().find(name);
  if (it != presets().end()) return it->second;
  std::string known;
  for (const auto& [other, preset] : presets()) known += (known.empty() ? "" : ", ") + other;
  throw Error(ErrorKind::Usage, "model", "no preset named '" + std::string(name) + "'; known are " + known);
}

void check_parts_fit(const StableDiffusionConfig& c, const std::string& where) {
  TENON_CHECK(Model, c.text.hidden == c.unet.context_dim, where)
      << "the text encoder's width " << c.text.hidden << " is not the UNet's cross_attention_dim "
      << c.unet.context_dim;
  TENON_CHECK(Model, c.vae.latent_channels == c.unet.in_channels, where)
      << "the VAE's " << c.vae.latent_channels << " latent channels are not the UNet's " << c.unet.in_channels;
}

}  // namespace tenon
