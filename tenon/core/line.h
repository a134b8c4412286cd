// One line of the text of expressions or of a plan. Sizes are limited, so untrusted text can neither exhaust memory nor
// overflow.
#pragma once
#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/core/shape.h"

namespace tenon {

/// Quoted: printable ASCII unchanged, every other byte as \xHH, so that the text stays ASCII whatever bytes a name has.
std::string quoted(std::string_view s);

/// Stores a number that is all of `token` in `value`; else returns invalid_argument, or result_out_of_range.
template <class T>
std::errc read_number(std::string_view token, T& value) {
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  return end == token.data() + token.size() ? error : std::errc::invalid_argument;
}
/// True if all of `token` is a number; stores it in `value`.
template <class T>
bool is_number(std::string_view token, T& value) {
  return read_number(token, value) == std::errc();
}

/// Parses a line from the left, skipping spaces. Throws Error(Usage) that names the line, the column, what was expected
/// and what was found.
class Line {
 public:
  static constexpr int64_t kMaxWhole = int64_t{1} << 53;  ///< sums of a few stay far from overflow

  Line(std::string_view text, size_t number, const char* of) : text_(text), number_(number), of_(of) {}

  template <class... A>
  [[noreturn]] void fail(const A&... parts) const {
    std::ostringstream out;
    out << "line " << number_ << ", column " << at_ + 1 << ": ";
    (out << ... << parts);
    throw Error(ErrorKind::Usage, of_, out.str());
  }
  [[noreturn]] void expected(const std::string& what) const {
    std::string found = at_ >= text_.size() ? "the end of the line" : "'";
    for (char c : text_.substr(std::min(at_, text_.size()), 16)) found += c >= ' ' && c < 0x7f ? c : '?';
    fail("expected ", what, ", found ", found, at_ >= text_.size() ? "" : "'");
  }

  std::string_view text() const { return text_; }
  /// The next character after spaces; '\0' at the end.
  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool at_end() { return peek() == '\0' && at_ >= text_.size(); }
  bool accept(char c) {
    const bool found = peek() == c && !at_end();
    if (found) ++at_;
    return found;
  }
  void expect(char c) {
    if (!accept(c)) expected(std::string("'") + c + "'");
  }
  void expect_end() {
    if (!at_end()) expected("the end of the line");
  }
  /// A run of a-z, 0-9 and _; `what` describes it in errors.
  std::string_view word(const std::string& what) {
    peek();
    return take(is_word, what);
  }
  /// Reads one of these words and returns its position among them.
  size_t one_of(std::span<const std::string_view> words) {
    std::string known;
    for (std::string_view w : words) known.append(known.empty() ? "" : w == words.back() ? " or " : ", ").append(w);
    const std::string_view found = word(known);
    const auto it = std::ranges::find(words, found);
    if (it == words.end()) fail("expected ", known, ", found '", found, "'");
    return static_cast<size_t>(it - words.begin());
  }
  /// The longest run of characters that may occur in a number.
  std::string_view number_text() {
    peek();
    return take([](char c) { return is_word(c) || c == '.' || c == '-' || c == '+'; }, "an attribute");
  }
  int64_t whole(std::string_view token, int64_t least) const {
    int64_t v = 0;
    if (!is_number(token, v) || v < least || v > kMaxWhole)
      fail("'", token, "' is not a whole number from ", least, " to 2^53");
    return v;
  }
  /// The number after '%'.
  size_t reference() {
    expect('%');
    return static_cast<size_t>(whole(take(is_digit, "a node number after '%'"), 0));
  }
  /// Inverse of tenon::quoted.
  std::string quoted() {
    expect('"');
    std::string out;
    for (;;) {
      if (at_ >= text_.size()) fail("unterminated quoted text");
      const char c = text_[at_++];
      if (c == '"') return out;
      if (c < ' ' || c > '~') fail("a byte in quotes that is not printable ASCII; write it as \\xHH");
      out += c == '\\' ? escaped() : c;
    }
  }
  Shape dims() {
    std::vector<int64_t> dims;
    expect('[');
    if (!accept(']')) {
      do {
        if (dims.size() == kMaxRank) fail("a shape of more than ", kMaxRank, " extents");
        dims.push_back(whole(number_text(), 0));
      } while (accept(','));
      expect(']');
    }
    return Shape(dims);
  }

 private:
  template <class In>
  std::string_view take(const In& in, const std::string& what) {
    const size_t begin = at_;
    while (at_ < text_.size() && in(text_[at_])) ++at_;
    if (at_ == begin) expected(what);
    return text_.substr(begin, at_ - begin);
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_word(char c) { return (c >= 'a' && c <= 'z') || is_digit(c) || c == '_'; }
  static int hex_digit(char c) { return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }
  char escaped() {
    const std::string_view next = text_.substr(at_, 3);
    if (next.starts_with('"') || next.starts_with('\\')) return text_[at_++];
    const int high = next.size() == 3 ? hex_digit(next[1]) : -1, low = high >= 0 ? hex_digit(next[2]) : -1;
    if (!next.starts_with('x') || low < 0) expected("\\\", \\\\ or \\xHH with lower-case digits");
    at_ += 3;
    return static_cast<char>(high * 16 + low);
  }

  std::string_view text_;
  size_t number_;
  const char* of_;
  size_t at_ = 0;
};

/// Removes lines from `text` up to the next one that is not empty and returns that one, counting in `number`; nothing
/// at the end. `of`: the operation that its errors name.
inline std::optional<Line> next_line(std::string_view& text, size_t& number, const char* of) {
  while (!text.empty()) {
    const size_t stop = std::min(text.find('\n'), text.size());
    Line line(text.substr(0, stop), ++number, of);
    text.remove_prefix(std::min(stop + 1, text.size()));
    if (!line.at_end()) return line;
  }
  return std::nullopt;
}

}  // namespace tenon
