#include "tenon/io/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "tenon/core/error.h"
#include "tenon/core/utf8.h"
#include "tenon/io/unicode.h"

namespace tenon::jinja {
namespace {

// Line ends converted to \n, and the last one removed.
std::string with_plain_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const bool pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (!pair) out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

// Limits the cost of a rendering step, which reads and copies names.
constexpr size_t kLongestName = 128;

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& where) : source_(with_plain_lines(source)), where_(where) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t open = find_open(at_);
      add_data(open);
      if (open == std::string::npos) break;
      const char kind = source_[open + 1];
      at_ = open + 2;
      if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+') && !(kind == '{' && source_[at_] == '+'))
        ++at_;
      if (kind == '#')
        skip_comment();
      else
        tag(kind == '{');
    }
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::Model, where_, "line " + std::to_string(line_) + ": " + what);
  }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  size_t find_open(size_t from) const {
    for (size_t i = source_.find('{', from); i != std::string::npos && i + 1 < source_.size();
         i = source_.find('{', i + 1))
      if (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#') return i;
    return std::string::npos;
  }

  // Adds the text before the tag at `open`, trimmed as the tag asks. Leaves at_ at the tag.
  void add_data(size_t open) {
    const size_t end = std::min(open, source_.size());
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (open != std::string::npos) {
      const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
      if (sign == '-') {
        text = without_trailing_space(text);
      } else if (source_[open + 1] != '{' && sign != '+') {
        const size_t line = text.rfind('\n') + 1;
        const bool at_line_start = line > 0 || line_starting_;
        if (at_line_start && line < text.size() && without_trailing_space(text.substr(line)).empty())
          text = text.substr(0, line);
      }
    }
    if (!text.empty()) add(TokenKind::Data, std::string(text));
    advance(end);
  }

  // After the end of a tag: skips the white space that the tag trims.
  void finish(size_t end, char sign, bool takes_newline) {
    advance(end);
    if (sign == '-') {
      const std::string_view rest = std::string_view(source_).substr(at_);
      advance(at_ + (rest.size() - without_leading_space(rest).size()));
    } else if (sign != '+' && takes_newline && at_ < source_.size() && source_[at_] == '\n') {
      advance(at_ + 1);
    }
    line_starting_ = source_[at_ - 1] == '\n';
  }

  void skip_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("unterminated comment");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    finish(end + 2, sign, true);
  }

  // From after {{ or {% to after its end.
  void tag(bool print) {
    add(print ? TokenKind::PrintBegin : TokenKind::BlockBegin, "");
    const std::string_view end = print ? "}}" : "%}";
    brackets_.clear();
    for (;;) {
      advance(at_ + skip_space());
      if (at_ >= source_.size()) fail("unterminated tag");
      const std::string_view rest = std::string_view(source_).substr(at_);
      const bool signed_end = (rest[0] == '-' || (rest[0] == '+' && !print)) && rest.substr(1).starts_with(end);
      if (brackets_.empty() && (signed_end || rest.starts_with(end))) {
        add(print ? TokenKind::PrintEnd : TokenKind::BlockEnd, "");
        finish(at_ + end.size() + (signed_end ? 1 : 0), signed_end ? rest[0] : '\0', !print);
        return;
      }
      token(rest);
    }
  }

  size_t skip_space() const {
    size_t n = 0;
    while (at_ + n < source_.size() && (source_[at_ + n] == ' ' || (source_[at_ + n] >= 9 && source_[at_ + n] <= 13)))
      ++n;
    return n;
  }

  void token(std::string_view rest) {
    if (is_name_start(rest[0])) {
      size_t n = 1;
      while (n < rest.size() && (is_name_start(rest[n]) || is_digit(rest[n]))) ++n;
      if (n > kLongestName) fail("a name of more than " + std::to_string(kLongestName) + " characters");
      add(TokenKind::Name, std::string(rest.substr(0, n)));
      at_ += n;
    } else if (is_digit(rest[0])) {
      number(rest);
    } else if (rest[0] == '"' || rest[0] == '\'') {
      string(rest);
    } else {
      operator_(rest);
    }
  }

  void number(std::string_view rest) {
    const auto digits = [&](size_t from) {
      while (from < rest.size() && is_digit(rest[from])) ++from;
      return from;
    };
    size_t n = digits(0);
    bool is_float = false;
    if (n + 1 < rest.size() && rest[n] == '.' && is_digit(rest[n + 1])) {
      is_float = true;
      n = digits(n + 1);
    }
    if (n < rest.size() && (rest[n] == 'e' || rest[n] == 'E')) {
      size_t e = n + 1;
      if (e < rest.size() && (rest[e] == '+' || rest[e] == '-')) ++e;
      if (digits(e) > e) {
        is_float = true;
        n = digits(e);
      }
    }
    if (n < rest.size() && (is_name_start(rest[n]))) fail("a number ends in letters");
    add(is_float ? TokenKind::Float : TokenKind::Integer, std::string(rest.substr(0, n)));
    at_ += n;
  }

  void string(std::string_view rest) {
    std::string out;
    for (size_t i = 1; i < rest.size();) {
      if (rest[i] == rest[0]) {
        add(TokenKind::String, std::move(out));
        advance(at_ + i + 1);
        return;
      }
      if (rest[i] == '\\' && i + 1 < rest.size())
        i = escape(rest, i + 1, out);
      else
        out += rest[i++];
    }
    fail("unterminated string");
  }

  // Decodes the escape with its letter at i; returns the position after it.
  size_t escape(std::string_view rest, size_t i, std::string& out) const {
    constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    const char c = rest[i];
    if (c == '\n') return i + 1;
    if (const size_t known = kFrom.find(c); known != std::string_view::npos) {
      out += kTo[known];
      return i + 1;
    }
    uint32_t code = 0;
    if (c >= '0' && c <= '7') {
      size_t n = 0;
      for (; n < 3 && i + n < rest.size() && rest[i + n] >= '0' && rest[i + n] <= '7'; ++n)
        code = code * 8 + static_cast<uint32_t>(rest[i + n] - '0');
      append_utf8(out, code);
      return i + n;
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == 'N') fail("\\N names a character, which is not supported; write the character");
    if (digits == 0) {  // not an escape: keep both characters
      out.append(1, '\\').append(1, c);
      return i + 1;
    }
    for (size_t n = 1; n <= digits; ++n) {
      const int value = i + n < rest.size() ? hex_value(rest[i + n]) : -1;
      if (value < 0) fail(std::string("\\") + c + " needs " + std::to_string(digits) + " hexadecimal digits");
      code = code * 16 + static_cast<uint32_t>(value);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) fail("an escape is not a Unicode character");
    append_utf8(out, code);
    return i + 1 + digits;
  }

  void operator_(std::string_view rest) {
    constexpr std::array<std::string_view, 6> kLong = {"==", "!=", "<=", ">=", "//", "**"};
    for (const std::string_view op : kLong)
      if (rest.starts_with(op)) {
        add(TokenKind::Operator, std::string(op));
        at_ += 2;
        return;
      }
    constexpr std::string_view kOpen = "([{", kClose = ")]}";
    const char c = rest[0];
    if (std::string_view("()[]{},.:|=<>+-*/%~").find(c) == std::string_view::npos) fail("unexpected character");
    if (const size_t open = kOpen.find(c); open != std::string_view::npos) brackets_ += kClose[open];
    if (kClose.find(c) != std::string_view::npos) {
      if (brackets_.empty()) fail(std::string("unmatched '").append(1, c).append("'"));
      if (brackets_.back() != c)
        fail(std::string("expected '").append(1, brackets_.back()).append("', found '").append(1, c).append("'"));
      brackets_.pop_back();
    }
    add(TokenKind::Operator, std::string(1, c));
    ++at_;
  }

  std::string source_;
  const std::string& where_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the text that follows begins a line
  std::string brackets_;       // closing brackets still expected
  std::vector<Token> tokens_;
};

}  // namespace

bool is_python_space(uint32_t c) { return (c >= 0x1c && c <= 0x1f) || is_white_space(c); }

std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    size_t at = begin;
    if (!is_python_space(next_code_point(text, at))) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::string_view without_leading_space(std::string_view text) {
  while (!text.empty()) {
    size_t at = 0;
    if (!is_python_space(next_code_point(text, at))) break;
    text.remove_prefix(at);
  }
  return text;
}

std::vector<Token> tokenize(std::string_view source, const std::string& where) { return Lexer(source, where).run(); }

}  // namespace tenon::jinja
