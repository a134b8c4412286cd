// Named architectures that need no file: `random:<name>` models. Each model's source file registers its own.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tenon/models/stable_diffusion.h"

namespace tenon {

struct ModelPreset {
  std::string name;     ///< as in `-m random:<name>`
  std::string summary;  ///< one line for listings
  StableDiffusionConfig config;
};

/// Every preset, ordered by name.
std::vector<const ModelPreset*> model_presets();
/// The preset of this name; Error(Usage) lists the names if there is none.
const ModelPreset& model_preset(std::string_view name);

/// Error(Usage) that there is no model random:`name`, with the known names and the nearest one.
[[noreturn]] void refuse_preset(const std::string& name, const std::vector<std::string>& known);

/// A namespace-scope object of this type adds a preset: `const RegisterModel sd15({"sd15", "...", {}});`
struct RegisterModel {
  explicit RegisterModel(ModelPreset preset);
};

}  // namespace tenon
