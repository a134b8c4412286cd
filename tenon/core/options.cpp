#include "tenon/core/options.h"

#include <cstdlib>

namespace tenon {
namespace {
constexpr OptionInfo kOptions[] = {
#define TENON_OPTION(name, variable, fallback, doc) {Option::name, variable, fallback, doc},
#include "tenon/core/options.def"
#undef TENON_OPTION
};
}  // namespace

std::span<const OptionInfo> all_options() { return kOptions; }

std::string option(Option id) {
  const OptionInfo& info = kOptions[static_cast<int>(id)];
  const char* value = std::getenv(info.variable);
  return value ? value : info.fallback;
}

std::filesystem::path cache_folder() {
  if (const std::string own = option(Option::CacheDir); !own.empty()) return own;
  if (const std::string base = option(Option::XdgCacheHome); !base.empty())
    return std::filesystem::path(base) / "tenon";
  return std::filesystem::path(option(Option::Home)) / ".cache/tenon";
}

}  // namespace tenon
