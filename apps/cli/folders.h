// Folders that settings resolve to.
#pragma once
#include <filesystem>
#include <string>

namespace tenon::cli {

/// The embedded default model's folder, or why there is none.
std::string default_model_text();
/// The folder of measured choices: TENON_CACHE_DIR, else XDG_CACHE_HOME/tenon, else ~/.cache/tenon.
std::filesystem::path cache_folder();

}  // namespace tenon::cli
