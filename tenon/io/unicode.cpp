#include "tenon/io/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/core/utf8.h"

namespace tenon {
namespace {

constexpr size_t kMaxNfcBytes = size_t{1} << 30;
constexpr uint32_t kFirstMark = 0x300;  // code points below this are always in NFC, whatever is next to them

CharClass slow_class(uint32_t c) {
  if (c == '\r' || c == '\n') return CharClass::Newline;
  const bool space = (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
                     (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
                     c == 0x3000;
  if (space) return CharClass::Space;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::Letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::Number;
    default:
      return CharClass::Other;
  }
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// The beginning of `bytes`: a whole character, a truncated one, or neither.
struct Sequence {
  size_t length;  // of the character, or of the longest prefix of one (at least 1)
  bool whole, cut;
};

Sequence sequence_at(std::string_view bytes, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(bytes[i + k]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {1, true, false};
  if (first < 0xc2 || first > 0xf4) return {1, false, false};
  const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (size_t k = 1; k < length; ++k) {
    if (i + k == bytes.size()) return {k, false, true};
    // The bounds on the second byte exclude overlong forms, surrogates and values beyond U+10FFFF.
    const uint8_t low = k > 1 ? 0x80 : first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = k > 1 ? 0xbf : first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (byte(k) < low || byte(k) > high) return {k, false, false};
  }
  return {length, true, false};
}

bool needs_normalising(std::string_view text) {
  for (size_t i = 0; i < text.size();)
    if (next_code_point(text, i) >= kFirstMark) return true;
  return false;
}

// Canonical decomposition with marks in canonical order.
std::vector<utf8proc_int32_t> decompose(std::string_view text) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  std::vector<utf8proc_int32_t> out;
  out.reserve(text.size());
  std::array<utf8proc_int32_t, 16> parts;
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(next_code_point(text, i));
    int boundary = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(c, parts.data(), parts.size(), kOptions, &boundary);
    TENON_CHECK(Internal, n > 0 && n <= static_cast<utf8proc_ssize_t>(parts.size()), "tokenizer")
        << "cannot decompose code point " << c;
    out.insert(out.end(), parts.begin(), parts.begin() + n);
  }
  for (auto begin = out.begin(); begin != out.end();) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, out.end(), [](utf8proc_int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
  return out;
}

}  // namespace

CharClass char_class(uint32_t code_point) {
  static const std::array<CharClass, 128> ascii = [] {
    std::array<CharClass, 128> out;
    for (uint32_t c = 0; c < 128; ++c) out[c] = slow_class(c);
    return out;
  }();
  return code_point < 128 ? ascii[code_point] : slow_class(code_point);
}

std::string nfc(std::string_view text) {
  TENON_CHECK(Memory, text.size() <= kMaxNfcBytes, "tokenizer")
      << "text of " << text.size() << " bytes; at most " << kMaxNfcBytes << " can be normalised";
  if (!needs_normalising(text)) return std::string(text);
  std::vector<utf8proc_int32_t> points = decompose(text);
  const utf8proc_ssize_t n =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  TENON_CHECK(Internal, n >= 0, "tokenizer") << "cannot normalise: " << utf8proc_errmsg(n);
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < n; ++i) append_utf8(out, static_cast<uint32_t>(points[static_cast<size_t>(i)]));
  return out;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const Sequence s = sequence_at(bytes, i);
    out += s.whole ? bytes.substr(i, s.length) : std::string_view("\xef\xbf\xbd");
    i += s.length;
  }
  return out;
}

size_t incomplete_utf8_tail(std::string_view bytes) {
  for (size_t n = 1; n <= std::min<size_t>(3, bytes.size()); ++n) {
    const Sequence s = sequence_at(bytes, bytes.size() - n);
    if (s.cut) return n;
    if (s.whole) return 0;
  }
  return 0;
}

}  // namespace tenon
