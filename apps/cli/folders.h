// Folders after resolving settings.
#pragma once
#include <string>

namespace tenon::cli {

/// The embedded default model's folder, or why it is missing.
std::string default_model_text();

}  // namespace tenon::cli
