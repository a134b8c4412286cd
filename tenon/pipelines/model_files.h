// Locations and names of models: paths given to -m, and files that come with the program.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tenon/io/component.h"

namespace tenon {

/// Folder of files that come with the program: share/tenon/`name` next to an installed library, else assets/`name` of
/// the source tree, whichever has `file`. Error(Model) lists the places that were tried.
std::filesystem::path asset_folder(const std::string& name, const std::string& file);
/// Names for -m of the embedded models: "default-model" and "z-image-shapes" draw, "sums" does sums.
const std::vector<std::string>& embedded_models();
/// Folder of one of them; Error(Model) if it is not installed.
std::filesystem::path embedded_model_folder(const std::string& name);
/// Folder of the embedded model that draws.
std::filesystem::path default_model_folder();
/// Name of a model at `path` in results and messages: the last part of the path, escaped by `shown`.
std::string model_name(const std::filesystem::path& path);
/// Weights in a folder: `stem`.safetensors, else its index, else the only .safetensors file; empty if there is none.
std::filesystem::path weights_in(const std::filesystem::path& folder, const std::string& stem);
/// Files of the weights of these components, indexes included, each once and in order.
std::vector<std::filesystem::path> weight_files(const std::map<std::string, Component>& components);
/// The same, and the configurations of the components and of `tokenizer` (a folder, or empty): all that pictures and
/// texts are encoded by.
std::vector<std::filesystem::path> encoder_files(const std::map<std::string, Component>& components,
                                                 const std::filesystem::path& tokenizer);
/// The only file of a folder with this extension; empty if there is none or more than one.
std::filesystem::path only_file(const std::filesystem::path& folder, const std::string& extension);
/// The path that `spec` names: as is, below TENON_MODEL_DIR, a folder fetched into the cache, or an embedded model.
/// Error(Model) says what was looked for.
std::filesystem::path find_model(const std::string& spec);

/// Throws Error(Model) if any of these tensors of a decoder's file, of which no network here knows a use, would change
/// results: rotary factors (Llama 3.1), biases, norms, scales of quantised weights. Rotary tensors of old files only
/// repeat their base.
void refuse_left_over(std::vector<std::string> names, const std::string& where);

}  // namespace tenon
