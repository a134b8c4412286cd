// Folders that settings resolve to.
#pragma once
#include <string>

namespace tenon::cli {

/// The embedded default model's folder, or why there is none.
std::string default_model_text();

}  // namespace tenon::cli
