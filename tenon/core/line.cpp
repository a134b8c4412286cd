#include "tenon/core/line.h"

namespace tenon {

std::string quoted(std::string_view s) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (char ch : s) {
    const auto c = static_cast<unsigned char>(ch);
    if (ch == '"' || ch == '\\') out += '\\';
    if (c >= 0x20 && c < 0x7f)
      out += ch;
    else
      out.append("\\x").append({kHex[c >> 4], kHex[c & 15]});
  }
  return out += '"';
}

}  // namespace tenon
