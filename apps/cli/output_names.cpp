#include "apps/cli/output_names.h"

#include <optional>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/image.h"

namespace tenon::cli {
namespace fs = std::filesystem;
namespace {

std::string padded(int number, size_t width) {
  const std::string digits = std::to_string(number);
  return digits.size() >= width ? digits : std::string(width - digits.size(), '0') + digits;
}

struct Pattern {
  std::string before, after;
  size_t width = 0;
};

// The %d of a name, if there is one. "%%" is not special: a name with any other '%' is refused.
std::optional<Pattern> find_pattern(const std::string& flag, const std::string& spec) {
  const size_t at = spec.find('%');
  if (at == std::string::npos) return {};
  size_t end = at + 1;
  while (end < spec.size() && spec[end] >= '0' && spec[end] <= '9') ++end;
  const std::string width = spec.substr(at + 1, end - at - 1);
  const bool good =
      end < spec.size() && spec[end] == 'd' && width.size() <= 2 && spec.find('%', end) == std::string::npos;
  TENON_CHECK(Usage, good, flag) << "'" << shown(spec)
                                 << "': expected one placeholder for the number, such as %d or %03d";
  return Pattern{spec.substr(0, at), spec.substr(end + 1), width.empty() ? 0 : std::stoul(width)};
}

}  // namespace

void check_ending(const std::string& flag, const fs::path& path, std::initializer_list<std::string_view> endings) {
  if (has_ending(path, endings)) return;
  std::string known;
  for (const std::string_view e : endings) known.append(known.empty() ? "" : " or ").append(e);
  throw Error(ErrorKind::Usage, flag, "'" + shown(path.native()) + "': expected a name that ends in " + known);
}

std::vector<fs::path> output_names(const std::string& flag, const std::string& spec, int count, int begin) {
  std::vector<fs::path> names;
  const auto add = [&](const auto& name_of_number) {
    for (int i = 0; i < count; ++i) names.emplace_back(name_of_number(begin + i));
  };
  std::error_code unreadable;  // a path that cannot be examined counts as no folder; writing reports the error
  if (!spec.empty() && (spec.back() == '/' || fs::is_directory(spec, unreadable))) {
    add([&](int n) { return fs::path(spec) / (padded(n, 4) + ".png"); });
    return names;
  }
  const fs::path path = spec.empty() ? "output.png" : spec;
  TENON_CHECK(Usage, has_ending(path, {".png"}) || has_jpeg_name(path), flag)
      << "'" << shown(spec) << "': expected a name that ends in .png, .jpg or .jpeg";
  if (const auto pattern = find_pattern(flag, path.string()))
    add([&](int n) { return pattern->before + padded(n, pattern->width) + pattern->after; });
  else if (count == 1)
    names.push_back(path);
  else
    add([&](int n) {
      return path.parent_path() / (path.stem().string() + "_" + std::to_string(n) + path.extension().string());
    });
  return names;
}

}  // namespace tenon::cli
