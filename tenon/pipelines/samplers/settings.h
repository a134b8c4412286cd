// Typed access to a scheduler_config.json object.
#pragma once
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// An absent or null key takes the caller's fallback; a value of another type, or one that is not implemented, is
/// Error(Model) and names the key. Refers to the config, which must outlive it.
class Settings {
 public:
  /// `where` begins every message: the file's name.
  Settings(const nlohmann::json& config, std::string where = "scheduler_config");  // NOLINT: json is what callers have

  /// The file's name, as messages begin.
  const std::string& where() const { return where_; }
  /// A key as messages name it: "scheduler_config beta_start".
  std::string where(const char* key) const { return where_ + " " + key; }
  /// The config's class name; Error(Model) if there is none.
  std::string class_name() const;
  bool flag(const char* key, bool fallback) const;
  /// A finite number in [low, high].
  double number(const char* key, double fallback, double low, double high) const;
  int integer(const char* key, int fallback, int low, int high) const;
  /// The index in `choices` of the key's text.
  size_t choice(const char* key, std::string_view fallback, std::initializer_list<std::string_view> choices) const;
  /// A list of numbers, empty if absent.
  std::vector<double> list(const char* key) const;
  bool has(const char* key) const { return value(key) != nullptr; }
  /// Error(Model) if the config turns on something that is not implemented.
  void refuse(std::initializer_list<const char*> flags) const;

 private:
  const nlohmann::json* value(const char* key) const;
  const nlohmann::json& config_;
  std::string where_;
};

}  // namespace tenon
