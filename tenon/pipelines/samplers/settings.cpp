#include "tenon/pipelines/samplers/settings.h"

#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/json.h"

namespace tenon {

Settings::Settings(const nlohmann::json& config, std::string where) : config_(config), where_(std::move(where)) {
  TENON_CHECK(Model, config.is_object(), where_) << "expected a JSON object, got " << shown_json(config);
}

std::string Settings::class_name() const {
  const nlohmann::json* v = value("_class_name");
  TENON_CHECK(Model, v && v->is_string(), where_) << "expected the scheduler's name in _class_name";
  return v->get<std::string>();
}

const nlohmann::json* Settings::value(const char* key) const {
  const auto at = config_.find(key);
  return at == config_.end() || at->is_null() ? nullptr : &*at;
}

bool Settings::flag(const char* key, bool fallback) const {
  const nlohmann::json* v = value(key);
  if (!v) return fallback;
  TENON_CHECK(Model, v->is_boolean(), where(key)) << "expected true or false, got " << shown_json(*v);
  return v->get<bool>();
}

double Settings::number(const char* key, double fallback, double low, double high) const {
  const nlohmann::json* v = value(key);
  if (!v) return fallback;
  TENON_CHECK(Model, v->is_number(), where(key)) << "expected a number, got " << shown_json(*v);
  const double x = v->get<double>();
  TENON_CHECK(Model, x >= low && x <= high, where(key)) << "expected " << low << ".." << high << ", got " << x;
  return x;
}

int Settings::integer(const char* key, int fallback, int low, int high) const {
  const double x = number(key, fallback, low, high);
  TENON_CHECK(Model, x == std::floor(x), where(key)) << "expected a whole number, got " << x;
  return static_cast<int>(x);
}

size_t Settings::choice(const char* key, std::string_view fallback,
                        std::initializer_list<std::string_view> choices) const {
  const nlohmann::json* v = value(key);
  TENON_CHECK(Model, !v || v->is_string(), where(key)) << "expected a name, got " << shown_json(*v);
  const std::string text = v ? v->get<std::string>() : std::string(fallback);
  std::string known;
  size_t index = 0;
  for (const std::string_view c : choices) {
    if (c == text) return index;
    known += (index++ ? ", " : "") + std::string(c);
  }
  throw Error(ErrorKind::Model, where(key), "'" + shown(text) + "' is not implemented", "implemented: " + known);
}

std::vector<double> Settings::list(const char* key) const {
  const nlohmann::json* v = value(key);
  std::vector<double> out;
  if (!v) return out;
  TENON_CHECK(Model, v->is_array() && !v->empty(), where(key)) << "expected a list of numbers, got " << v->type_name();
  for (const nlohmann::json& x : *v) {
    TENON_CHECK(Model, x.is_number(), where(key)) << "expected a list of numbers, got an element " << shown_json(x);
    out.push_back(x.get<double>());
  }
  return out;
}

void Settings::refuse(std::initializer_list<const char*> flags) const {
  for (const char* key : flags)
    TENON_CHECK(Model, !flag(key, false), where(key)) << "is set, but this is not implemented";
}

}  // namespace tenon
