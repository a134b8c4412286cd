#include "tenon/models/config_reader.h"

#include <algorithm>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/text.h"
#include "tenon/io/json.h"

namespace tenon {
using nlohmann::json;

namespace {
std::string range(double lo, double hi) {
  std::ostringstream out;
  out << "a number from " << lo << " to " << hi;
  return out.str();
}
std::string range(int64_t lo, int64_t hi) {
  return "a whole number from " + std::to_string(lo) + " to " + std::to_string(hi);
}
}  // namespace

ConfigReader::ConfigReader(const json& config, std::string where) : config_(config), where_(std::move(where)) {
  TENON_CHECK(Model, config.is_object(), where_) << "expected a JSON object, found " << shown_json(config);
}

void ConfigReader::refuse(std::string_view key, const std::string& expected) const {
  const auto it = config_.find(key);
  const std::string value = it == config_.end() ? "(absent)" : shown_json(*it);
  throw Error(ErrorKind::Model, where_, "'" + std::string(key) + "' is " + value + ", expected " + expected);
}

bool ConfigReader::has(std::string_view key) const {
  const auto it = config_.find(key);
  return it != config_.end() && !it->is_null();
}

const json* ConfigReader::find(std::string_view key) {
  read_.emplace(key);
  const auto it = config_.find(key);
  return it != config_.end() ? &*it : nullptr;
}

int64_t ConfigReader::checked_integer(const json& v, std::string_view key, int64_t lo, int64_t hi) const {
  // JSON integers beyond int64 are unsigned, and would wrap.
  const bool fits = v.is_number_integer() && !(v.is_number_unsigned() && v.get<uint64_t>() > (uint64_t{1} << 62));
  if (!fits || v.get<int64_t>() < lo || v.get<int64_t>() > hi) refuse(key, range(lo, hi));
  return v.get<int64_t>();
}

int64_t ConfigReader::integer(std::string_view key, int64_t fallback, int64_t lo, int64_t hi) {
  const json* v = find(key);
  return v ? checked_integer(*v, key, lo, hi) : fallback;
}

double ConfigReader::number(std::string_view key, double fallback, double lo, double hi) {
  const json* v = find(key);
  if (!v) return fallback;
  if (!v->is_number() || !(v->get<double>() >= lo && v->get<double>() <= hi)) refuse(key, range(lo, hi));
  return v->get<double>();
}

bool ConfigReader::flag(std::string_view key, bool fallback) {
  const json* v = find(key);
  if (v && !v->is_boolean()) refuse(key, "true or false");
  return v ? v->get<bool>() : fallback;
}

std::string ConfigReader::name(std::string_view key, const std::string& fallback) {
  const json* v = find(key);
  if (v && !v->is_string()) refuse(key, "a string");
  return v ? v->get<std::string>() : fallback;
}

std::vector<int64_t> ConfigReader::integers(std::string_view key, const std::vector<int64_t>& fallback, size_t count,
                                            int64_t lo, int64_t hi) {
  const json* v = find(key);
  std::vector<int64_t> out;
  if (!v) {
    out = fallback;
  } else if (v->is_array()) {
    for (const json& item : *v) out.push_back(checked_integer(item, key, lo, hi));
  } else {
    out = {checked_integer(*v, key, lo, hi)};
  }
  if (out.size() == 1 && count) out.resize(count, out[0]);
  if (out.empty() || (count && out.size() != count))
    refuse(key, "one number" + (count ? ", or " + std::to_string(count) + " of them" : std::string(" or more")));
  return out;
}

std::vector<std::string> ConfigReader::names(std::string_view key, const std::vector<std::string>& fallback) {
  const json* v = find(key);
  if (!v) return fallback;
  const bool good = v->is_array() && std::ranges::all_of(*v, [](const json& item) { return item.is_string(); });
  if (!good) refuse(key, "an array of strings");
  return v->get<std::vector<std::string>>();
}

void ConfigReader::expect(std::string_view key, std::initializer_list<json> allowed) {
  const json* v = find(key);
  if (!v || std::ranges::find(allowed, *v) != allowed.end()) return;
  std::string list;
  for (const json& a : allowed) list += (list.empty() ? "" : " or ") + a.dump();
  refuse(key, list + " (nothing else is implemented)");
}

void ConfigReader::ignore(std::initializer_list<std::string_view> keys) {
  for (std::string_view key : keys) read_.emplace(key);
}

void ConfigReader::finish() const {
  constexpr int kMaxNamed = 8;
  int unknown = 0;
  for (const auto& [key, value] : config_.items()) {
    const bool idle = value.is_null() || value == json(false) || key.starts_with('_');
    if (idle || read_.contains(key) || ++unknown > kMaxNamed) continue;
    spdlog::warn("{}: ignoring unknown key '{}'", shown(where_), shown(key));
  }
  if (unknown > kMaxNamed) spdlog::warn("{}: ignoring {} more unknown keys", shown(where_), unknown - kMaxNamed);
}

}  // namespace tenon
