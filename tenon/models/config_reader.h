// Reads a component's config.json the way diffusers and transformers do: absent keys take the class's default. A value
// that would change the meaning and is not implemented is refused by key and value, never skipped.
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
  /// `where` begins every message: the file's name. Throws Error(Model) if `config` is not an object.
  ConfigReader(const nlohmann::json& config, std::string where);

  /// A whole number in lo..hi; Error(Model) names key, value and range otherwise.
  int64_t integer(std::string_view key, int64_t fallback, int64_t lo, int64_t hi);
  /// A finite number in lo..hi.
  double number(std::string_view key, double fallback, double lo, double hi);
  bool flag(std::string_view key, bool fallback);
  std::string name(std::string_view key, const std::string& fallback);
  /// `count` whole numbers in lo..hi (any positive count for 0); one number stands for `count` equal ones.
  std::vector<int64_t> integers(std::string_view key, const std::vector<int64_t>& fallback, size_t count, int64_t lo,
                                int64_t hi);
  std::vector<std::string> names(std::string_view key, const std::vector<std::string>& fallback);

  /// The key must be absent or one of `allowed`: all that is implemented.
  void expect(std::string_view key, std::initializer_list<nlohmann::json> allowed);
  /// The keys have no meaning for inference.
  void ignore(std::initializer_list<std::string_view> keys);
  /// True if the key is there and not null.
  bool has(std::string_view key) const;
  /// Warns of keys that nothing has read and that hold more than null or false. Names that begin with '_' are notes.
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
