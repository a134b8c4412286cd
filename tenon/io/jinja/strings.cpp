#include "tenon/io/jinja/strings.h"

#include <utf8proc.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <limits>

#include "tenon/core/utf8.h"
#include "tenon/io/jinja/lexer.h"
#include "tenon/io/jinja/library.h"

namespace tenon::jinja {
namespace {

void append_upper(std::string& out, uint32_t c, const char* sharp_s = "SS") {
  if (c == 0xdf)
    out += sharp_s;
  else
    append_utf8(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}
void append_lower(std::string& out, uint32_t c) {
  append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

bool is_cased_letter(uint32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LT;
}

}  // namespace

std::string upper_of(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) append_upper(out, next_code_point(text, i));
  return out;
}
std::string lower_of(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) append_lower(out, next_code_point(text, i));
  return out;
}

std::string capital(const std::string& text) {
  std::string out;
  size_t first = 0;
  if (!text.empty()) append_upper(out, next_code_point(text, first), "Ss");
  return out + lower_of(text.substr(first));
}

std::string titled(const std::string& text, bool python) {
  std::string out;
  bool begins = true;
  for (size_t i = 0; i < text.size();) {
    const uint32_t c = next_code_point(text, i);
    if (begins)
      append_upper(out, c, python ? "Ss" : "SS");
    else
      append_lower(out, c);
    constexpr std::string_view kOpening = "-({[<";
    begins = python ? !is_cased_letter(c)
                    : is_python_space(c) || (c < 0x80 && kOpening.find(static_cast<char>(c)) != kOpening.npos);
  }
  return out;
}

std::string stripped(const std::string& text, const Value& characters, Ends ends, Budget& budget) {
  const bool left = ends != Ends::Right, right = ends != Ends::Left;
  budget.make(text.size());
  std::string_view out = text;
  if (characters.is_undefined() || characters.is_none()) {
    if (left) out = without_leading_space(out);
    if (right) out = without_trailing_space(out);
    return std::string(out);
  }
  std::vector<uint32_t> set;
  const std::string& listed = string_of(characters, "strip");
  budget.make(listed.size() * sizeof(uint32_t));
  budget.work(listed.size() * sizeof(uint32_t) * static_cast<uint64_t>(std::bit_width(listed.size())));  // for sorting
  for (size_t i = 0; i < listed.size();) set.push_back(next_code_point(listed, i));
  std::sort(set.begin(), set.end());
  const auto is_in = [&](size_t at) {
    budget.work(static_cast<uint64_t>(std::bit_width(set.size())));
    return std::binary_search(set.begin(), set.end(), next_code_point(out, at));
  };
  while (left && !out.empty() && is_in(0)) {
    size_t next = 0;
    next_code_point(out, next);
    out.remove_prefix(next);
  }
  while (right && !out.empty()) {
    size_t last = out.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(out[last]) & 0xc0) == 0x80) --last;
    if (!is_in(last)) break;
    out = out.substr(0, last);
  }
  return std::string(out);
}

uint64_t split_bytes(const std::string& text) { return text.size() * (2 + sizeof(Value) / 2); }

List split_at(const std::string& text, const std::string& separator, int64_t most) {
  if (separator.empty()) throw RenderError{"split: an empty separator", true};
  List out;
  size_t at = 0;
  for (size_t found = find_part(text, separator); found != std::string::npos && most != 0; --most) {
    out.emplace_back(text.substr(at, found - at));
    at = found + separator.size();
    found = find_part(text, separator, at);
  }
  out.emplace_back(text.substr(at));
  return out;
}

List split_at_space(std::string_view text, int64_t most) {
  List out;
  for (text = without_leading_space(text); !text.empty(); --most) {
    size_t end = 0;
    while (end < text.size() && most != 0) {
      size_t next = end;
      if (is_python_space(next_code_point(text, next))) break;
      end = next;
    }
    if (most == 0) end = text.size();
    out.emplace_back(text.substr(0, end));
    text = without_leading_space(text.substr(end));
  }
  return out;
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to, int64_t most,
                     Budget& budget) {
  std::string out;
  size_t at = 0;
  while (most != 0) {
    size_t found = find_part(text, from, at);
    if (from.empty() && found != std::string::npos && at == text.size()) {
      out += to;  // after the last character too
      break;
    }
    if (found == std::string::npos) break;
    size_t next = found + from.size();
    if (from.empty()) next_code_point(text, next);
    budget.make(to.size() + (next - at));
    out.append(text, at, found - at).append(to);
    if (from.empty()) out.append(text, found, next - found);
    at = next;
    --most;
  }
  budget.make(text.size());
  return at <= text.size() ? out.append(text, at) : out;
}

namespace {

// ASCII digits for those of all scripts, so that numbers can be read as Python reads them.
std::string with_plain_digits(std::string_view text) {
  std::string out;
  const auto is_digit = [](uint32_t c) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
  };
  for (size_t i = 0; i < text.size();) {
    const uint32_t c = next_code_point(text, i);
    if (c < 0x80 || !is_digit(c)) {
      append_utf8(out, c);
      continue;
    }
    uint32_t zero = c;  // digits come in runs that begin with a zero: ten, or fifty in mathematical alphabets
    while (is_digit(zero - 1)) --zero;
    out += static_cast<char>('0' + (c - zero) % 10);
  }
  return out;
}

// Drops underscores between digits, as Python allows them; nothing if there are others.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  const auto is_digit = [&](size_t i) { return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])); };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_')
      out += text[i];
    else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1))
      return std::nullopt;
  }
  return out;
}

}  // namespace

std::optional<int64_t> integer_of(std::string_view whole, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  const std::string plain = with_plain_digits(without_leading_space(without_trailing_space(whole)));
  std::string_view text = plain;
  const bool minus = text.starts_with('-');
  if (minus || text.starts_with('+')) text.remove_prefix(1);
  const auto prefix = [&](char letter, int64_t of) {
    const bool has = text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter && (base == 0 || base == of);
    if (!has) return false;
    text.remove_prefix(text[2] == '_' ? 3 : 2);
    base = of;
    return true;
  };
  const bool prefixed = prefix('x', 16) || prefix('o', 8) || prefix('b', 2);
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || !std::isalnum(static_cast<unsigned char>((*digits)[0]))) return std::nullopt;
  if (base == 0 && !prefixed && (*digits)[0] == '0' && digits->find_first_not_of('0') != std::string::npos)
    return std::nullopt;
  const std::string signed_ = (minus ? "-" : "") + *digits;
  int64_t out = 0;
  const char* end = signed_.data() + signed_.size();
  const auto parsed = std::from_chars(signed_.data(), end, out, static_cast<int>(base == 0 ? 10 : base));
  if (parsed.ptr != end) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) throw RenderError{"an integer beyond 64 bits", true};
  return out;
}

std::optional<double> float_of(std::string_view whole) {
  const auto digits = without_underscores(with_plain_digits(without_leading_space(without_trailing_space(whole))));
  if (!digits || digits->find('(') != std::string::npos) return std::nullopt;  // C++ also reads "nan(1)"
  std::string_view text = *digits;
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double out = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
  if (text.empty() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  if (parsed.ec != std::errc::result_out_of_range) return out;
  const size_t exponent = text.find_first_of("eE");
  const bool tiny = exponent != std::string_view::npos ? text.substr(exponent).find('-') != std::string_view::npos
                                                       : text.find_first_not_of("+-0.") > text.find('.');
  return tiny ? 0.0 : std::numeric_limits<double>::infinity();
}

}  // namespace tenon::jinja
