#include "tenon/pipelines/family.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/core/similar.h"
#include "tenon/models/registry.h"
#include "tenon/pipelines/random_weights.h"

namespace tenon {
namespace {

std::vector<ModelFamily>& registry() {
  static std::vector<ModelFamily> all;
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

}  // namespace

RegisterFamily::RegisterFamily(ModelFamily family) { registry().push_back(std::move(family)); }

std::vector<const ModelFamily*> model_families() {
  std::vector<const ModelFamily*> out;
  for (const ModelFamily& f : registry()) out.push_back(&f);
  std::ranges::sort(out, {}, &ModelFamily::name);
  return out;
}

std::vector<std::string> ModelParts::parts_named(const std::string& part) const {
  std::vector<std::string> all = parts();
  if (part.empty()) return {default_part()};
  if (part == "all") return all;
  if (std::ranges::find(all, part) != all.end()) return {part};
  std::string known = "all";
  for (const std::string& p : all) known += ", " + p;
  all.emplace_back("all");
  throw Error(ErrorKind::Usage, "--part", "'" + part + "' is no part of " + name() + "; its parts are " + known,
              did_you_mean(part, all));
}

const ModelFamily& family_of(const std::string& spec) {
  if (spec.starts_with(kRandomModel)) return family_of_preset(spec.substr(kRandomModel.size()));
  const std::filesystem::path path = spec.empty() ? default_model_folder() : find_model(spec);
  for (const ModelFamily* f : model_families())
    if (f->reads && f->reads(path)) return *f;
  for (const ModelFamily* f : model_families())
    if (!f->reads) return *f;
  throw Error(ErrorKind::Model, path.string(), "is no model of a known kind");
}

std::shared_ptr<const ModelParts> open_parts(const std::string& spec) { return family_of(spec).open(spec); }

}  // namespace tenon
