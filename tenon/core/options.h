// Options from environment variables, generated from options.def.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

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
/// The variable's value, or its default if it is unset or empty.
std::string option(Option id);
/// Whether a variable that turns something on is "1" rather than "0", empty or unset. Error(Usage) for other values.
bool is_on(Option id);
/// The folder for measured choices and compiled kernels: TENON_CACHE_DIR, else XDG_CACHE_HOME/tenon, else
/// ~/.cache/tenon, where ~ is HOME or else the home folder in the password database. It may not exist yet. Empty if the
/// user has no home folder: then nothing is cached on disk.
std::filesystem::path cache_folder();
/// A file or folder in the cache folder; empty if there is none.
std::filesystem::path cached(std::string_view name);

}  // namespace tenon
