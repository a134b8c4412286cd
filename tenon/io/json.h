// Strict JSON parsing, for untrusted files. Takes linear time and asks check_stop().
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tenon/core/error.h"

namespace tenon {

/// Deepest nesting; no configuration, index or header in use comes near it.
inline constexpr int kMaxJsonDepth = 64;
/// Most values of all kinds; the largest tokenizers in use have half as many.
inline constexpr size_t kMaxJsonValues = 4'000'000;
/// Longest string or number, in bytes.
inline constexpr size_t kMaxJsonToken = 16 << 20;

/// Parses RFC 8259 JSON. Throws an Error of `kind` that begins with `where` for invalid UTF-8 (naming the byte offset),
/// NaN and Infinity, numbers out of range, comments, duplicate keys, text after the value, and input beyond the limits
/// above.
nlohmann::json parse_json(std::string_view text, const std::string& where, ErrorKind kind = ErrorKind::Model);

/// parse_json of a whole file; Error(Model) names the file if it cannot be read.
nlohmann::json read_json(const std::filesystem::path& path);
/// read_json of a file that must hold an object; null if the file does not exist.
nlohmann::json read_json_object(const std::filesystem::path& path);
/// The same for files of Python's json module, which writes -Infinity for "no lower limit"; it is read as null.
nlohmann::json read_python_json_object(const std::filesystem::path& path);

/// A value for a message: escaped and shortened.
std::string shown_json(const nlohmann::json& value);
/// The boolean under `key`; `otherwise` if there is none or null. Error(Model) at `where` for anything else, which
/// names the key after `front`.
bool json_flag(const nlohmann::json& object, const char* key, const std::string& where, bool otherwise = false,
               const char* front = "");
/// A value as text for stdout and files: ASCII only, so that it cannot send control sequences to a terminal. Never
/// fails (bytes of a string that are not UTF-8 are escaped as by as_utf8). Indented by `indent` blanks, or one line.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

/// Receives the events of a JSON parse; refuses by throwing.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  /// A string, a number, true, false or null.
  virtual void value(nlohmann::json v) = 0;
  /// An object's key; the next event is its value.
  virtual void key(std::string name) = 0;
  /// begin(): an object or else an array begins. end(): the innermost open one ends.
  virtual void begin(bool object) = 0;
  virtual void end() = 0;
};
/// parse_json without building a tree: `events` must refuse duplicate keys and too many values itself.
void parse_json_events(std::string_view text, const std::string& where, ErrorKind kind, JsonEvents& events);

}  // namespace tenon
