// Texts in a picture's text chunks.
#include "tenon/io/image.h"
#include "tenon/io/json.h"

namespace tenon {
namespace {
// A user's text may contain anything; bytes that are not UTF-8 are replaced rather than losing the picture.
template <class Json>
std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string quoted(const std::string& value) {
  if (value.find_first_of(",:\n") == std::string::npos) return value;
  return dump(nlohmann::json(value));
}
}  // namespace

std::string a1111_parameters(const std::string& prompt, const std::string& negative, const PictureSettings& settings) {
  std::string out = prompt;
  if (!negative.empty()) out += "\nNegative prompt: " + negative;
  out += "\n";
  bool first = true;
  for (const auto& [key, value] : settings) {
    out += (first ? "" : ", ") + key + ": " + quoted(value);
    first = false;
  }
  return out;
}

std::string settings_json(const PictureSettings& settings, const PictureSettings& raw) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& [key, value] : settings) out[key] = value;
  for (const auto& [key, value] : raw) out[key] = nlohmann::ordered_json(parse_json(value, key, ErrorKind::Internal));
  return dump(out);
}

}  // namespace tenon
