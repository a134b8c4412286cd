// Families of models by what they can do. A family (Stable Diffusion, image encoders, ..) is a folder of families/ that
// registers itself; whoever needs a model asks for an ability (ImageGenerator, ImageEmbedder, ModelParts, ..) and names
// no family.
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

/// What messages and scripts call an ability.
struct AbilityName {
  std::string_view verb;           ///< that asks for it: "generate"
  std::string_view words;          ///< of a model that can: "draw pictures"
  std::string_view embedded = {};  ///< the embedded model that is meant where none is named; empty: there is none
};

/// Opens the model that `spec` names as an interface with a constant kAbility (its AbilityName) and a type Options.
template <class Interface>
using Opener =
    std::function<std::unique_ptr<Interface>(const std::string& spec, const typename Interface::Options& options)>;

/// Something that the models of a family can do.
struct Ability {
  AbilityName name;
  std::any open;  ///< an Opener
};
template <class Interface>
Ability ability(Opener<Interface> open) {
  return {Interface::kAbility, std::move(open)};
}

/// Names for random:NAME and a line about each.
using Presets = std::vector<std::pair<std::string, std::string>>;

/// One kind of model.
struct ModelFamily {
  std::string name;
  std::function<Presets()> presets = [] { return Presets(); };
  /// True for a path that holds a model of this family. Empty: its models are presets only.
  std::function<bool(const std::filesystem::path&)> reads = {};
  /// What is at a path that it reads. Throws Error(Model) for what cannot be looked at.
  std::function<ModelReport(const std::filesystem::path&)> inspect = {};
  std::vector<Ability> abilities = {};
  /// Takes the paths that no family knows as its own, to say what a model is expected to look like. One family does.
  bool last_resort = false;
};

/// A namespace-scope object of this type adds a family.
struct RegisterFamily {
  explicit RegisterFamily(ModelFamily family);
};
/// All families by name.
std::vector<const ModelFamily*> model_families();
/// Those that have the ability.
std::vector<const ModelFamily*> families_that(const AbilityName& ability);

/// The family that knows `spec`: a path, tried as it is and below TENON_MODEL_DIR, "random:NAME" with a preset, or ""
/// (the embedded model that draws). Error(Usage) lists the presets for an unknown random:NAME; Error(Model) for a path
/// that is not there.
const ModelFamily& family_of(const std::string& spec);

/// The family that is asked for an ability of `spec`: the one that knows it, whatever it can do; for a path that none
/// knows, one that has the ability, whose errors say what it expects there. Errors as family_of.
const ModelFamily& family_asked(const std::string& spec, const AbilityName& wanted);

/// Throws that models of `family`, which `spec` is one of, cannot do what is wanted: what they can, and who can that.
/// Error(Usage) for a preset, Error(Model) for a path.
[[noreturn]] void refuse_ability(const ModelFamily& family, const std::string& spec, const AbilityName& wanted);

/// The model that `given` names, or if it is empty the ability's embedded model, as an ImageGenerator, ImageEmbedder,
/// .. by its family. Errors as family_of and refuse_ability, and what opening it throws.
template <class Interface>
std::unique_ptr<Interface> open_as(const std::string& given, const typename Interface::Options& options = {}) {
  const std::string spec = given.empty() ? std::string(Interface::kAbility.embedded) : given;
  const ModelFamily& family = family_asked(spec, Interface::kAbility);
  for (const Ability& a : family.abilities)
    if (const auto* open = std::any_cast<Opener<Interface>>(&a.open)) return (*open)(spec, options);
  refuse_ability(family, spec, Interface::kAbility);
}

}  // namespace tenon
