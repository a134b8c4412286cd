// Model families by ability. A family (image encoders, language models, ..) is a folder of families/ that registers
// itself; code that needs a model asks for an ability (ImageGenerator, ImageEmbedder, ModelParts, ..) and names no
// family.
#pragma once
#include <any>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon {

struct ModelReport;

/// How messages and scripts name an ability.
struct AbilityName {
  std::string_view verb;           ///< verb of the command line that needs it: "generate"
  std::string_view words;          ///< what such a model can do: "draw pictures"
  std::string_view embedded = {};  ///< embedded model to use if none is named; empty: there is none
};

/// Opens the model named by `spec` as Interface, which has a constant kAbility (its AbilityName) and a type Options.
template <class Interface>
using Opener =
    std::function<std::unique_ptr<Interface>(const std::string& spec, const typename Interface::Options& options)>;

/// One ability of a family's models.
struct Ability {
  AbilityName name;
  std::any open;  ///< an Opener
};
template <class Interface>
Ability ability(Opener<Interface> open) {
  return {Interface::kAbility, std::move(open)};
}

/// Names for random:NAME, each with a one-line summary.
using Presets = std::vector<std::pair<std::string, std::string>>;

/// One kind of model.
struct ModelFamily {
  std::string name;
  std::function<Presets()> presets = [] { return Presets(); };
  /// Whether a path holds a model of this family. Empty: its models are presets only.
  std::function<bool(const std::filesystem::path&)> reads = {};
  /// Architectures that GGUF files of these models name.
  std::vector<std::string> gguf = {};
  /// Describes what is at a path that it reads. Throws Error(Model) if that cannot be examined.
  std::function<ModelReport(const std::filesystem::path&)> inspect = {};
  std::vector<Ability> abilities = {};
  /// Handles paths that no family recognises, to say what a model is expected to look like. Only one family does.
  bool last_resort = false;
};

/// A namespace-scope object of this type adds a family.
struct RegisterFamily {
  explicit RegisterFamily(ModelFamily family);
};
/// All families, ordered by name.
std::vector<const ModelFamily*> model_families();
/// Families that have the ability.
std::vector<const ModelFamily*> families_that(const AbilityName& ability);

/// The family that recognises `spec`: a path, tried as is and below TENON_MODEL_DIR, "random:NAME" with a preset, or ""
/// (the embedded model that draws). Error(Usage) lists the presets for an unknown random:NAME; Error(Model) for a path
/// that does not exist, and for a GGUF file of an architecture that no family reads: lists those that one does.
const ModelFamily& family_of(const std::string& spec);

/// The family to ask for an ability of `spec`: the one that recognises it, whether or not it has the ability; for a
/// path that none recognises, one that has the ability, so that its errors say what it expects there. Errors as
/// family_of.
const ModelFamily& family_asked(const std::string& spec, const AbilityName& wanted);

/// Throws that models of `family`, such as `spec`, do not have the wanted ability; says what they can do and which
/// families have it. Error(Model).
[[noreturn]] void refuse_ability(const ModelFamily& family, const std::string& spec, const AbilityName& wanted);

/// Opens the model that `given` names, or the ability's embedded model if it is empty, as an Interface (ImageGenerator,
/// ImageEmbedder, ..). Errors as family_of and refuse_ability, and those of opening it.
template <class Interface>
std::unique_ptr<Interface> open_as(const std::string& given, const typename Interface::Options& options = {}) {
  const std::string spec = given.empty() ? std::string(Interface::kAbility.embedded) : given;
  const ModelFamily& family = family_asked(spec, Interface::kAbility);
  for (const Ability& a : family.abilities)
    if (const auto* open = std::any_cast<Opener<Interface>>(&a.open)) return (*open)(spec, options);
  refuse_ability(family, spec, Interface::kAbility);
}

}  // namespace tenon
