// Options from environment variables, generated from options.def.
#pragma once
#include <filesystem>
#include <span>
#include <string>

namespace tenon {

enum class Option {
#define TENON_OPTION(name, variable, fallback, doc) name,
#include "tenon/core/options.def"
#undef TENON_OPTION
};

struct OptionInfo {
  Option id;
  const char* variable;
  const char* fallback;
  const char* doc;
};

/// All options, in the order of options.def.
std::span<const OptionInfo> all_options();
/// The variable's value, or its default if it is unset.
std::string option(Option id);
/// The folder for measured choices and compiled kernels: TENON_CACHE_DIR, else XDG_CACHE_HOME/tenon, else
/// ~/.cache/tenon. It may not exist yet.
std::filesystem::path cache_folder();

}  // namespace tenon
