// The inverse of print. Strict: nodes are numbered %0, %1, .. in order, one a line, and every shape and attribute
// passes through Graph::make. Text from a stranger cannot exhaust memory or overflow: sizes are limited below.
#include <charconv>
#include <cmath>
#include <sstream>

#include "tenon/core/error.h"
#include "tenon/expr/expr.h"
#include "tenon/expr/node_type.h"

namespace tenon {
namespace {

constexpr size_t kMaxNodes = 1'000'000;
constexpr size_t kMaxOperands = 4096, kMaxAttributes = 4096, kMaxTextLength = 4096;
constexpr int64_t kMaxWhole = int64_t{1} << 53;  // sums of a few stay far from overflow

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// One line of text, read from the left.
class Line {
 public:
  Line(std::string_view text, size_t number) : text_(text), number_(number) {}

  template <class... A>
  [[noreturn]] void fail(const A&... parts) const {
    std::ostringstream out;
    out << "line " << number_ << ", column " << at_ + 1 << ": ";
    (out << ... << parts);
    throw Error(ErrorKind::Usage, "parse", out.str());
  }
  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool at_end() const { return at_ >= text_.size(); }
  bool accept(char c) {
    skip_spaces();
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) expected(std::string("'") + c + "'");
  }
  [[noreturn]] void expected(const std::string& what) const {
    std::string found = at_end() ? "the end of the line" : "'";
    for (size_t i = at_; i < std::min(text_.size(), at_ + 16); ++i)
      found += text_[i] >= ' ' && text_[i] < 0x7f ? text_[i] : '?';
    fail("expected ", what, ", found ", found, (at_end() ? "" : "'"));
  }
  void expect_end() {
    skip_spaces();
    if (!at_end()) expected("the end of the line");
  }
  std::string_view word(const char* what) {
    skip_spaces();
    const size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (at_ == begin) expected(what);
    return text_.substr(begin, at_ - begin);
  }
  // The characters that a number can be made of.
  std::string_view number_text() {
    skip_spaces();
    const size_t begin = at_;
    while (at_ < text_.size() && (is_word(text_[at_]) || text_[at_] == '.' || text_[at_] == '-' || text_[at_] == '+'))
      ++at_;
    const std::string_view token = text_.substr(begin, at_ - begin);
    if (token.empty()) expected("an attribute");
    return token;
  }
  int64_t whole(std::string_view token, int64_t least) const {
    int64_t v = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), v);
    if (error != std::errc() || end != token.data() + token.size() || v < least || v > kMaxWhole)
      fail("'", token, "' is not a whole number from ", least, " to 2^53");
    return v;
  }
  size_t reference() {
    expect('%');
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ == begin) expected("a node number behind '%'");
    return static_cast<size_t>(whole(text_.substr(begin, at_ - begin), 0));
  }
  std::string quoted() {
    expect('"');
    std::string out;
    for (;;) {
      if (at_end()) fail("the text in quotes does not end");
      if (out.size() > kMaxTextLength) fail("the text in quotes is longer than ", kMaxTextLength, " bytes");
      const char c = text_[at_++];
      if (c == '"') return out;
      if (c < ' ' || c > '~') fail("a byte in quotes that is not printable ASCII; write it as \\xHH");
      out += c == '\\' ? escaped() : c;
    }
  }

 private:
  char escaped() {
    const char c = peek();
    if (c == '"' || c == '\\') return ++at_, c;
    const int high = at_ + 2 < text_.size() ? hex_digit(text_[at_ + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text_[at_ + 2]) : -1;
    if (c != 'x' || low < 0) expected("\\\", \\\\ or \\xHH with lower-case digits");
    at_ += 3;
    return static_cast<char>(high * 16 + low);
  }

  std::string_view text_;
  size_t number_;
  size_t at_ = 0;
};

bool is_number_word(std::string_view token) { return token == "inf" || token == "-inf" || token == "nan"; }

Shape parse_dims(Line& line) {
  std::vector<int64_t> dims;
  line.expect('[');
  if (!line.accept(']')) {
    do {
      if (dims.size() == kMaxRank) line.fail("a shape of more than ", kMaxRank, " extents");
      dims.push_back(line.whole(line.number_text(), 0));
    } while (line.accept(','));
    line.expect(']');
  }
  return Shape(dims);
}

// A dtype, a whole number or a number; `stage` says how far the order of attributes has come.
void parse_plain(Line& line, Attrs& a, int& stage) {
  const std::string_view token = line.number_text();
  const bool named = token[0] >= 'a' && token[0] <= 'z' && !is_number_word(token);
  if (named) {
    if (stage > 0) line.fail("the element type '", token, "' is out of order");
    stage = 1;
    try {
      a.dtype = parse_dtype(token);
    } catch (const Error& e) {
      line.fail(e.what());
    }
    if (name_of(a.dtype) != token) line.fail("write the element type as ", name_of(a.dtype));
    a.has_dtype = true;
  } else if (!is_number_word(token) && token.find_first_of(".e") == std::string_view::npos) {
    if (stage > 3) line.fail("the whole number ", token, " is out of order");
    stage = 3;
    a.ints.push_back(line.whole(token, -kMaxWhole));
  } else {
    stage = 4;
    double v = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), v);
    if (error != std::errc() || end != token.data() + token.size()) line.fail("'", token, "' is not a number");
    a.nums.push_back(v);
  }
}

// The list between < and >, the < having been read.
Attrs parse_attributes(Line& line) {
  Attrs a;
  int stage = -1;  // 0 text, 1 element type, 2 shape, 3 whole numbers, 4 numbers
  do {
    line.skip_spaces();
    if (line.peek() == '"') {
      if (stage >= 0) line.fail("text is out of order");
      stage = 0;
      a.text = line.quoted();
      if (a.text.empty()) line.fail("an empty text");
    } else if (line.peek() == '[') {
      if (stage > 1) line.fail("a shape is out of order");
      stage = 2;
      a.has_dims = true;
      a.dims = parse_dims(line);
    } else {
      parse_plain(line, a, stage);
    }
    if (a.ints.size() + a.nums.size() > kMaxAttributes) line.fail("more than ", kMaxAttributes, " attributes");
  } while (line.accept(','));
  line.expect('>');
  return a;
}

std::vector<Expr> parse_operands(Line& line, std::span<const Expr> known, char end) {
  std::vector<Expr> in;
  if (line.accept(end)) return in;
  do {
    const size_t n = line.reference();
    if (n >= known.size()) line.fail("%", n, " is not defined above");
    if (in.size() == kMaxOperands) line.fail("more than ", kMaxOperands, " operands");
    in.push_back(known[n]);
  } while (line.accept(','));
  if (end) line.expect(end);
  return in;
}

Expr parse_node(Graph& g, Line& line, std::span<const Expr> known) {
  const size_t n = line.reference();
  if (n != known.size()) line.fail("expected node %", known.size(), ", found %", n);
  line.expect('=');
  const std::string name(line.word("the name of a node"));
  const NodeType* type = find_node_type(name);
  if (!type) line.fail("there is no node named '", name, "'");
  Attrs attrs;
  if (line.accept('<')) attrs = parse_attributes(line);
  line.expect('(');
  const std::vector<Expr> in = parse_operands(line, known, ')');
  line.expect_end();
  try {
    return g.make(*type, in, std::move(attrs));
  } catch (const Error& e) {
    line.fail(e.what());
  }
}

}  // namespace

std::vector<Expr> parse(Graph& g, std::string_view text) {
  std::vector<Expr> known;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t stop = text.find('\n');
    Line line(text.substr(0, stop), number);
    text = stop == std::string_view::npos ? std::string_view() : text.substr(stop + 1);
    line.skip_spaces();
    if (line.at_end()) continue;
    if (line.peek() == '%') {
      if (known.size() == kMaxNodes) line.fail("more than ", kMaxNodes, " nodes");
      known.push_back(parse_node(g, line, known));
      continue;
    }
    if (line.peek() != 'r' || line.word("'return'") != "return") line.expected("'%' or 'return'");
    std::vector<Expr> roots;
    line.skip_spaces();
    if (!line.at_end()) roots = parse_operands(line, known, '\0');
    line.expect_end();
    if (text.find_first_not_of(" \n") != std::string_view::npos) line.fail("text follows 'return'");
    return roots;
  }
  throw Error(ErrorKind::Usage, "parse", "the text ends without 'return'");
}

}  // namespace tenon
