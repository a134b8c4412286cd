#include "tenon/core/text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "tenon/core/utf8.h"

namespace tenon {
namespace {

struct Range {
  uint32_t first, last;
};
// Code points that control a terminal or are invisible: C0, DEL and C1, then Unicode's format characters. The joiners
// 200c and 200d are allowed: scripts and emoji need them.
constexpr std::array<Range, 12> kHidden = {{{0x00, 0x1f},
                                            {0x7f, 0x9f},
                                            {0xad, 0xad},
                                            {0x61c, 0x61c},
                                            {0x180e, 0x180e},
                                            {0x200b, 0x200b},
                                            {0x200e, 0x200f},
                                            {0x2028, 0x202e},
                                            {0x2060, 0x206f},
                                            {0xfeff, 0xfeff},
                                            {0xfff9, 0xfffb},
                                            {0xe0000, 0xe007f}}};

bool is_hidden(uint32_t c) {
  return std::any_of(kHidden.begin(), kHidden.end(), [c](Range r) { return c >= r.first && c <= r.last; });
}

std::string escape_of(uint32_t c) {
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  if (c == '\r') return "\\r";
  char out[12];
  std::snprintf(out, sizeof out, c < 0x80 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
  return out;
}

// The byte or character at `at` as shown; advances `at` past it.
std::string next_shown(std::string_view text, size_t& at) {
  const size_t begin = at, length = utf8_length(text, at);
  if (length == 0) {
    char out[8];
    std::snprintf(out, sizeof out, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(text[at++])));
    return out;
  }
  const uint32_t c = next_code_point(text, at);
  return is_hidden(c) ? escape_of(c) : std::string(text.substr(begin, length));
}

// Where the first character at or after `at` begins: at most three bytes on, as in UTF-8.
size_t character_from(std::string_view text, size_t at) {
  for (int i = 0; i < 3 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; ++i) ++at;
  return at;
}

}  // namespace

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string counted(int64_t number, const std::string& thing) {
  return std::to_string(number) + " " + thing + (number == 1 ? "" : "s");
}

std::string joined(std::span<const std::string> words, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) out.append(i ? separator : "").append(words[i]);
  return out;
}

std::string escaped(std::string_view foreign) {
  std::string out;
  for (size_t at = 0; at < foreign.size();) out += next_shown(foreign, at);
  return out;
}

std::string shown(std::string_view foreign, size_t most) {
  constexpr std::string_view kGap = " .. ";
  if (foreign.size() <= most)
    if (std::string whole = escaped(foreign); whole.size() <= most) return whole;
  // Read no more than can be shown: a value may have megabytes.
  const size_t room = most > kGap.size() ? most - kGap.size() : 0, tail_room = room / 3;
  std::string out;
  size_t read = 0;
  for (size_t next = 0; read < foreign.size(); read = next) {
    const std::string shown_next = next_shown(foreign, next);
    if (out.size() + shown_next.size() > room - tail_room) break;
    out += shown_next;
  }
  out += kGap;
  std::vector<std::string> tail;
  size_t bytes = 0;
  for (size_t at = character_from(foreign, std::max(read, foreign.size() - std::min(foreign.size(), tail_room)));
       at < foreign.size();)
    bytes += tail.emplace_back(next_shown(foreign, at)).size();
  for (const std::string& part : tail) {
    if (bytes <= tail_room) out += part;
    bytes -= bytes > tail_room ? part.size() : 0;
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

std::string mebibytes(int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

std::string as_utf8(std::string_view foreign) {
  if (!first_invalid_utf8(foreign)) return std::string(foreign);
  std::string out;
  for (size_t at = 0; at < foreign.size();) {
    const size_t length = utf8_length(foreign, at);
    if (length == 0)
      out += next_shown(foreign, at);
    else
      out += foreign.substr(at, length);
    at += length;
  }
  return out;
}

}  // namespace tenon
