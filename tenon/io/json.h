// Strict JSON: what a file must be before anything of it is believed. Reading takes linear time and asks check_stop().
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tenon/core/error.h"

namespace tenon {

/// Nesting that no configuration, index or header of ours or the field's comes near.
inline constexpr int kMaxJsonDepth = 64;
/// Values of all kinds; the largest tokenizers in use have half as many.
inline constexpr size_t kMaxJsonValues = 4'000'000;
/// Bytes of one string or number.
inline constexpr size_t kMaxJsonToken = 16 << 20;

/// Parses RFC 8259 JSON. Refuses, with an Error of `kind` that begins with `where`: invalid UTF-8 (naming the byte
/// offset), NaN and Infinity, numbers out of range, comments, duplicate keys, text behind the value, and what passes
/// the limits above.
nlohmann::json parse_json(std::string_view text, const std::string& where, ErrorKind kind = ErrorKind::Model);

/// parse_json over a whole file; Error(Model) names the file if it cannot be read.
nlohmann::json read_json(const std::filesystem::path& path);
/// read_json of a file that must hold an object; null if there is no such file.
nlohmann::json read_json_object(const std::filesystem::path& path);

/// A value as it stands in a message: escaped and shortened.
std::string shown_json(const nlohmann::json& value);
/// A value as text for stdout and files: ASCII, so that no terminal can be told anything, and never a failure (bytes of
/// a string that are not UTF-8 are escaped as as_utf8 does). Indented by `indent` blanks, or one line.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

/// Receives JSON piece by piece, and refuses by throwing.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  /// A string, a number, true, false or null.
  virtual void value(nlohmann::json v) = 0;
  /// An object's key; its value is what follows.
  virtual void key(std::string name) = 0;
  /// An object (or else an array) begins, and the innermost open one ends.
  virtual void begin(bool object) = 0;
  virtual void end() = 0;
};
/// What parse_json does, without a tree: duplicate keys and the number of values are for `events` to refuse.
void parse_json_events(std::string_view text, const std::string& where, ErrorKind kind, JsonEvents& events);

}  // namespace tenon
