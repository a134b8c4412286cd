// Reads a component's config.json as diffusers and transformers do: absent keys take the class's default. A value that
// would change the result and is not implemented is refused by key and value, never ignored.
#pragma once
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

class ConfigReader {
 public:
  /// `where`, the file's name, begins every message. Throws Error(Model) if `config` is not an object.
  ConfigReader(const nlohmann::json& config, std::string where);

  /// A whole number in lo..hi; Error(Model) names key, value and range otherwise.
  int64_t integer(std::string_view key, int64_t fallback, int64_t lo, int64_t hi);
  /// A finite number in lo..hi.
  double number(std::string_view key, double fallback, double lo, double hi);
  bool flag(std::string_view key, bool fallback);
  std::string name(std::string_view key, const std::string& fallback);
  /// `count` whole numbers in lo..hi (count 0: any positive number of them); a single number is repeated `count` times.
  std::vector<int64_t> integers(std::string_view key, const std::vector<int64_t>& fallback, size_t count, int64_t lo,
                                int64_t hi);
  std::vector<std::string> names(std::string_view key, const std::vector<std::string>& fallback);

  /// Checks that the key is absent or one of `allowed`, the values that are implemented.
  void expect(std::string_view key, std::initializer_list<nlohmann::json> allowed);
  /// Marks keys that have no effect on inference.
  void ignore(std::initializer_list<std::string_view> keys);
  /// Whether the key is present, null or not.
  bool present(std::string_view key) const { return config_.contains(key); }
  /// Whether the key is present and not null.
  bool has(std::string_view key) const;
  /// Warns of keys that nothing has read and whose value is more than null or false. Names that begin with '_' are
  /// notes.
  void finish() const;
  /// Throws Error(Model): key, value, then `expected`.
  [[noreturn]] void refuse(std::string_view key, const std::string& expected) const;

 private:
  const nlohmann::json* find(std::string_view key);
  int64_t checked_integer(const nlohmann::json& v, std::string_view key, int64_t lo, int64_t hi) const;

  const nlohmann::json& config_;
  std::string where_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace tenon
