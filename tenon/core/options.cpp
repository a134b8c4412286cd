#include "tenon/core/options.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "tenon/core/error.h"
#include "tenon/core/text.h"

namespace tenon {
namespace {
constexpr OptionInfo kOptions[] = {
#define TENON_OPTION(name, variable, fallback, doc) {Option::name, variable, fallback, doc},
#include "tenon/core/options.def"
#undef TENON_OPTION
};

// The user's home folder in the password database; empty if the database has none.
std::filesystem::path home_of_user() {
  std::array<char, 16384> text{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(getuid(), &entry, text.data(), text.size(), &found) != 0 || !found || !found->pw_dir) return {};
  return found->pw_dir;
}
}  // namespace

std::span<const OptionInfo> all_options() { return kOptions; }

std::string option(Option id) {
  const OptionInfo& info = kOptions[static_cast<int>(id)];
  const char* value = std::getenv(info.variable);
  return value && *value ? value : info.fallback;
}

bool is_on(Option id) {
  const std::string value = option(id);
  TENON_CHECK(Usage, value.empty() || value == "0" || value == "1", kOptions[static_cast<int>(id)].variable)
      << "expected 1, 0 or nothing, got '" << shown(value) << "'";
  return value == "1";
}

std::filesystem::path cache_folder() {
  if (const std::string own = option(Option::CacheDir); !own.empty()) return own;
  if (const std::string base = option(Option::XdgCacheHome); !base.empty())
    return std::filesystem::path(base) / "tenon";
  std::filesystem::path home = option(Option::Home);
  if (!home.is_absolute()) home = home_of_user();
  return home.is_absolute() ? home / ".cache/tenon" : std::filesystem::path();
}

std::filesystem::path cached(std::string_view name) {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / name;
}

}  // namespace tenon
