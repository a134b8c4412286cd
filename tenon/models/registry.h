// Named architectures whose layout needs no file: `random:<name>` models. A model's source file registers its own.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tenon/models/stable_diffusion.h"

namespace tenon {

struct ModelPreset {
  std::string name;     ///< as in `-m random:<name>`
  std::string summary;  ///< one line for lists
  StableDiffusionConfig config;
};

/// Every preset, ordered by name.
std::vector<const ModelPreset*> model_presets();
/// The preset of this name; Error(Usage) lists the names otherwise.
const ModelPreset& model_preset(std::string_view name);

/// Error(Usage) that there is no model random:`name`, with the names that there are and the nearest of them.
[[noreturn]] void refuse_preset(const std::string& name, const std::vector<std::string>& known);

/// A namespace-scope object of this type adds a preset: `const RegisterModel sd15({"sd15", "...", {}});`
struct RegisterModel {
  explicit RegisterModel(ModelPreset preset);
};

}  // namespace tenon
