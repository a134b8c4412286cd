#include "tenon/pipelines/offload_size.h"

#include <array>
#include <charconv>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/text.h"

namespace tenon {

int64_t parse_size(const std::string& text, const std::string& where, const std::string& or_else) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr std::array kUnits = {Unit{"", 1 << 30}, Unit{"B", 1},         Unit{"kB", 1e3},
                                        Unit{"KB", 1e3},   Unit{"KiB", 1 << 10}, Unit{"MB", 1e6},
                                        Unit{"GB", 1e9},   Unit{"MiB", 1 << 20}, Unit{"GiB", 1 << 30}};
  double number = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(rest, text.data() + text.size());
  for (const Unit& u : kUnits)
    if (problem == std::errc() && unit == u.name && number * u.bytes >= 1 && number * u.bytes < 1e18)
      return static_cast<int64_t>(number * u.bytes);
  throw Error(ErrorKind::Usage, where,
              "'" + shown(text) + "' is not a size; expected one such as 10GB" +
                  (or_else.empty() ? " or 800MiB" : ", 800MiB or " + or_else));
}

int64_t parse_offload(const std::string& text, const std::string& where) {
  return text == "auto" ? kOffloadAutomatically : parse_size(text, where, "auto");
}

std::optional<Offload> offload_on(const Backend& backend, std::optional<int64_t> bytes) {
  if (!bytes) return {};
  check_offloads(backend);
  return Offload{.bytes = *bytes == kOffloadAutomatically ? backend.memory_available() / 10 * 9 : *bytes};
}

}  // namespace tenon
