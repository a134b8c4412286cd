#include "tenon/models/registry.h"

#include <map>

#include "tenon/core/error.h"
#include "tenon/core/similar.h"
#include "tenon/core/text.h"

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
  std::vector<std::string> known;
  for (const auto& [other, preset] : presets()) known.push_back(other);
  refuse_preset(std::string(name), known);
}

void refuse_preset(const std::string& name, const std::vector<std::string>& known) {
  throw Error(ErrorKind::Usage, "model", "no preset named '" + shown(name) + "'; presets: " + joined(known),
              did_you_mean(name, known));
}

}  // namespace tenon
