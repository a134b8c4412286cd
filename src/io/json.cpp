#include "tenon/io/json.h"

#include <set>
#include <vector>

#include "tenon/io/files.h"
#include "tenon/io/utf8.h"

namespace tenon {
namespace {
// "[json.exception.parse_error.101] parse error at line 1, column 5: ..." without the library's own tag.
std::string without_tag(const std::string& message) {
  const size_t end = message.find("] ");
  return message.starts_with("[json.") && end != std::string::npos ? message.substr(end + 2) : message;
}
}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& where, ErrorKind kind, int max_depth) {
  using nlohmann::json;
  if (const auto bad = first_invalid_utf8(text))
    throw Error(kind, where, "invalid UTF-8 in JSON at byte " + std::to_string(*bad));
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    if (depth >= max_depth)
      throw Error(kind, where, "JSON nested deeper than " + std::to_string(max_depth) + " levels");
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      throw Error(kind, where, "duplicate key '" + value.get<std::string>() + "' in JSON");
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), check);
  } catch (const json::exception& e) {
    throw Error(kind, where, "invalid JSON: " + without_tag(e.what()));
  }
}

nlohmann::json read_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

}  // namespace tenon
