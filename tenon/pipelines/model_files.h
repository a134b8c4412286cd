// Where models are: paths that -m names, what comes with the program, and what a model is called.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace tenon {

/// What comes with the program: share/tenon/`name` beside an installed library, else assets/`name` of the source tree,
/// whichever holds `file`. Error(Model) lists the places that were tried.
std::filesystem::path asset_folder(const std::string& name, const std::string& file);
/// Names for -m of the models that come with the program: "default-model" and "z-image-shapes" draw, "sums" does sums.
const std::vector<std::string>& embedded_models();
/// Folder of one of them; Error(Model) where it was not installed.
std::filesystem::path embedded_model_folder(const std::string& name);
/// Folder of the embedded model that draws.
std::filesystem::path default_model_folder();
/// What a model at `path` is called in results and messages: the last part of the path, as `shown` makes it.
std::string model_name(const std::filesystem::path& path);
/// Weights in a folder: `stem`.safetensors, else its index, else the only .safetensors file; empty if there is none.
std::filesystem::path weights_in(const std::filesystem::path& folder, const std::string& stem);
/// The one file of a folder with this extension; empty if there is none, or several to choose from.
std::filesystem::path only_file(const std::filesystem::path& folder, const std::string& extension);
/// The path that `spec` names, as it is, below TENON_MODEL_DIR, a folder that was fetched into the cache, or an
/// embedded model. Error(Model) says what was looked for.
std::filesystem::path find_model(const std::string& spec);

}  // namespace tenon
