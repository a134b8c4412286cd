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

}  // namespace tenon
