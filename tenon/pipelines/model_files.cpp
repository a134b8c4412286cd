#include "tenon/pipelines/model_files.h"

#include <dlfcn.h>

#include <algorithm>
#include <set>

#include "tenon/core/error.h"
#include "tenon/core/options.h"
#include "tenon/core/similar.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/pipelines/family.h"
#include "tenon/pipelines/random_weights.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {
// What a path that does not exist could have meant: embedded models, and folders and weights next to it and in
// TENON_MODEL_DIR. Examines a bounded number of entries.
std::vector<std::string> names_beside(const fs::path& given, const std::string& base) {
  constexpr int kMaxEntries = 1000;
  std::vector<std::string> out = embedded_models();
  std::error_code ignored;
  for (const fs::path& folder : {given.has_parent_path() ? given.parent_path() : fs::path("."), fs::path(base)}) {
    fs::directory_iterator entry(folder, ignored);
    for (int i = 0; i < kMaxEntries && !ignored && entry != fs::directory_iterator(); ++i, entry.increment(ignored))
      if (entry->path().extension() == ".safetensors" || entry->is_directory(ignored))
        out.push_back(entry->path().filename().string());
  }
  return out;
}

// The name of the random model that `spec` is, with "random:" missing or a few letters different; empty if there is
// none.
std::string random_name_near(const std::string& spec) {
  std::vector<std::string> names;
  for (const ModelFamily* family : model_families())
    for (const auto& [preset, about] : family->presets()) {
      names.push_back(std::string(kRandomModel) + preset);
      if (preset == spec) return names.back();
    }
  return spec.find(':') == std::string::npos ? "" : closest(spec, names);
}
}  // namespace

fs::path find_model(const std::string& spec) {
  fs::path given(spec);
  if (file_exists(given)) return given;
  const std::string base = option(Option::ModelDir);
  const bool below = !base.empty() && given.is_relative();
  if (below && file_exists(fs::path(base) / given)) return fs::path(base) / given;
  // Fetched by scripts of the source tree (tools/get_smollm2.sh).
  fs::path fetched = cached("fetched") / given;
  if (given == given.filename() && fetched != given && folder_exists(fetched)) return fetched;
  if (std::ranges::count(embedded_models(), spec) > 0) return embedded_model_folder(spec);
  std::string tried = shown(given.native());
  if (below) tried += " or " + shown((fs::path(base) / given).native());
  const std::string random = random_name_near(spec);
  throw Error(ErrorKind::Model, "model", "no model at " + tried,
              did_you_mean(given.filename().string(), names_beside(given, base),
                           random.empty() ? "expected a folder, a .safetensors or .gguf file, or random:NAME"
                                          : "did you mean '" + random + "'?"));
}

fs::path only_file(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> found;
  for (const fs::path& entry : list_folder(folder))
    if (entry.extension() == extension) found.push_back(entry);
  return found.size() == 1 ? found[0] : fs::path();
}

fs::path weights_in(const fs::path& folder, const std::string& stem) {
  if (!folder_exists(folder)) return {};
  for (const char* extension : {".safetensors", ".safetensors.index.json"})
    if (file_exists(folder / (stem + extension))) return folder / (stem + extension);
  return only_file(folder, ".safetensors");
}

std::vector<fs::path> weight_files(const std::map<std::string, Component>& components) {
  std::set<fs::path> out;
  for (const auto& [name, component] : components) out.insert(component.files.begin(), component.files.end());
  return {out.begin(), out.end()};
}

std::vector<fs::path> encoder_files(const std::map<std::string, Component>& components, const fs::path& tokenizer) {
  const std::vector<fs::path> weights = weight_files(components);
  std::set<fs::path> out(weights.begin(), weights.end());
  for (const auto& [name, component] : components)
    if (!component.config.is_null() && component.blocks.empty())  // a GGUF file holds its own
      out.insert(component.config_file());
  if (folder_exists(tokenizer))
    for (const fs::path& file : list_folder(tokenizer))
      if (has_ending(file, {".json", ".jinja", ".txt"})) out.insert(file);
  return {out.begin(), out.end()};
}

std::string model_name(const fs::path& path) {
  return shown((path.filename().empty() ? path.parent_path() : path).filename().native());
}

fs::path asset_folder(const std::string& name, const std::string& file) {
  std::vector<fs::path> places;
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&asset_folder), &info) && info.dli_fname) {
    std::error_code failed;  // without a working directory a relative name cannot be resolved
    const fs::path library = fs::weakly_canonical(info.dli_fname, failed);
    places.push_back(library.parent_path() / "../share/tenon" / name);
    places.push_back(library.parent_path() / "../../share/tenon" / name);
  }
  places.push_back(fs::path(TENON_ASSETS) / name);
  std::string tried;
  for (const fs::path& p : places) {
    std::error_code failed;
    if (fs::exists(p / file, failed)) {
      const fs::path real = fs::weakly_canonical(p, failed);
      return failed ? p : real;
    }
    tried += (tried.empty() ? "" : ", ") + p.lexically_normal().string();
  }
  throw Error(ErrorKind::Model, name, "not found; looked in " + tried);
}

const std::vector<std::string>& embedded_models() {
  static const std::vector<std::string> names{"default-model", "sums", "z-image-shapes"};
  return names;
}

fs::path embedded_model_folder(const std::string& name) {
  return asset_folder(name, name == "sums" ? "config.json" : "model_index.json");
}

fs::path default_model_folder() { return embedded_model_folder("default-model"); }

void refuse_left_over(std::vector<std::string> names, const std::string& where) {
  std::erase_if(names, [](const std::string& name) {
    return name.find("rot_embd") != std::string::npos || name.ends_with("rotary_emb.inv_freq");
  });
  if (names.empty()) return;
  const bool scaled = std::ranges::find(names, "rope_freqs.weight") != names.end();
  throw Error(ErrorKind::Model, where,
              scaled ? "the rotary factors in 'rope_freqs.weight' are not those of Llama 3.1, and are not supported"
                     : "the network has no tensor '" + names.front() + "'" +
                           (names.size() > 1 ? " and " + std::to_string(names.size() - 1) + " more" : "") +
                           "; ignoring that would give wrong results");
}

}  // namespace tenon
