#include "tenon/pipelines/family.h"

#include <algorithm>
#include <deque>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/gguf.h"
#include "tenon/models/registry.h"
#include "tenon/pipelines/model_files.h"
#include "tenon/pipelines/random_weights.h"

namespace tenon {
namespace {

std::deque<ModelFamily>& registry() {
  static std::deque<ModelFamily> all;  // a deque, so that pointers to elements stay valid
  return all;
}

const ModelFamily& family_of_preset(const std::string& name) {
  std::vector<std::string> known;
  for (const ModelFamily* f : model_families())
    for (const auto& [preset, about] : f->presets()) {
      if (preset == name) return *f;
      known.push_back(preset);
    }
  refuse_preset(name, known);
}

// Null for a path that no family reads.
const ModelFamily* family_that_knows(const std::string& spec) {
  if (spec.starts_with(kRandomModel)) return &family_of_preset(spec.substr(kRandomModel.size()));
  const std::filesystem::path path = spec.empty() ? default_model_folder() : find_model(spec);
  for (const ModelFamily* f : model_families())
    if (f->reads && f->reads(path)) return f;
  return nullptr;
}

const ModelFamily& last_resort() {
  for (const ModelFamily* f : model_families())
    if (f->last_resort) return *f;
  throw Error(ErrorKind::Internal, "families", "no family is registered as the last resort");
}

bool has(const ModelFamily& family, const AbilityName& wanted) {
  return std::ranges::any_of(family.abilities, [&](const Ability& a) { return a.name.verb == wanted.verb; });
}

// Refuses a GGUF file of an architecture that none of the families reads. A damaged one is refused in opening it.
void check_gguf(const std::string& spec, const std::vector<const ModelFamily*>& families) {
  const std::filesystem::path path = spec.empty() ? std::filesystem::path() : find_model(spec);
  if (path.extension() != ".gguf") return;
  const std::string architecture = GgufFile::open(path).architecture();
  std::vector<std::string> known;
  for (const ModelFamily* f : families)
    for (const std::string& name : f->gguf) {
      if (name == architecture) return;
      known.push_back(name + " (" + f->name + ")");
    }
  if (known.empty()) return;
  throw Error(ErrorKind::Model, path.string(),
              "is a GGUF file of architecture '" + shown(architecture) + "'; expected " + joined(known, " or "));
}

}  // namespace

RegisterFamily::RegisterFamily(ModelFamily family) { registry().push_back(std::move(family)); }

std::vector<const ModelFamily*> model_families() {
  std::vector<const ModelFamily*> out;
  for (const ModelFamily& f : registry()) out.push_back(&f);
  std::ranges::sort(out, {}, &ModelFamily::name);
  return out;
}

std::vector<const ModelFamily*> families_that(const AbilityName& ability) {
  std::vector<const ModelFamily*> out = model_families();
  std::erase_if(out, [&](const ModelFamily* f) { return !has(*f, ability); });
  return out;
}

const ModelFamily& family_of(const std::string& spec) {
  if (const ModelFamily* known = family_that_knows(spec)) return *known;
  check_gguf(spec, model_families());
  return last_resort();
}

const ModelFamily& family_asked(const std::string& spec, const AbilityName& wanted) {
  if (const ModelFamily* known = family_that_knows(spec)) return *known;
  check_gguf(spec, families_that(wanted));
  if (has(last_resort(), wanted)) return last_resort();
  for (const ModelFamily* f : families_that(wanted))
    if (f->reads) return *f;
  return last_resort();
}

void refuse_ability(const ModelFamily& family, const std::string& spec, const AbilityName& wanted) {
  const bool preset = spec.starts_with(kRandomModel);
  std::vector<std::string> can, others;
  for (const Ability& a : family.abilities)
    can.push_back(std::string(a.name.words) + " (" + std::string(a.name.verb) + ")");
  for (const ModelFamily* f : families_that(wanted)) {
    if (!preset) others.push_back(f->name);
    for (const auto& [name, about] : preset ? f->presets() : Presets()) others.push_back(name);
  }
  throw Error(ErrorKind::Model, preset || spec.empty() ? "model" : spec,
              (preset ? shown(spec) + " is" : "is") + " of the family '" + family.name + "', which cannot " +
                  std::string(wanted.words) + "; it can " + (can.empty() ? "do nothing" : joined(can)),
              others.empty() ? "" : "these can: " + joined(others));
}

}  // namespace tenon
