// The inverse of print. Strict: one node per line, numbered %0, %1, .. in order; every shape and attribute goes through
// Graph::make.
#include "tenon/core/line.h"
#include "tenon/expr/expr.h"
#include "tenon/expr/node_type.h"

namespace tenon {
namespace {

constexpr size_t kMaxNodes = 1'000'000;
constexpr size_t kMaxOperands = 4096, kMaxAttributes = 4096;

bool is_number_word(std::string_view token) { return token == "inf" || token == "-inf" || token == "nan"; }

// Parses a dtype, an integer or a number; `stage` tracks the order of the attributes.
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
    if (name_of(*a.dtype) != token) line.fail("write the element type as ", name_of(*a.dtype));
  } else if (!is_number_word(token) && token.find_first_of(".e") == std::string_view::npos) {
    if (stage > 3) line.fail("the whole number ", token, " is out of order");
    stage = 3;
    a.ints.push_back(line.whole(token, -Line::kMaxWhole));
  } else {
    stage = 4;
    double v = 0;
    if (!is_number(token, v)) line.fail("'", token, "' is not a number");
    a.nums.push_back(v);
  }
}

// Parses the list between < and >; the < has been read.
Attrs parse_attributes(Line& line) {
  Attrs a;
  int stage = -1;  // 0 text, 1 element type, 2 shape, 3 integers, 4 numbers
  do {
    if (line.peek() == '"') {
      if (stage >= 0) line.fail("text is out of order");
      stage = 0;
      a.text = line.quoted();
      if (a.text.empty()) line.fail("an empty text");
    } else if (line.peek() == '[') {
      if (stage > 1) line.fail("a shape is out of order");
      stage = 2;
      a.dims = line.dims();
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
  size_t number = 0;
  while (std::optional<Line> next = next_line(text, number, "parse")) {
    Line& line = *next;
    if (line.peek() == '%') {
      if (known.size() == kMaxNodes) line.fail("more than ", kMaxNodes, " nodes");
      known.push_back(parse_node(g, line, known));
      continue;
    }
    if (line.peek() != 'r' || line.word("'return'") != "return") line.expected("'%' or 'return'");
    std::vector<Expr> roots;
    if (!line.at_end()) roots = parse_operands(line, known, '\0');
    line.expect_end();
    if (text.find_first_not_of(" \n") != std::string_view::npos) line.fail("text follows 'return'");
    return roots;
  }
  throw Error(ErrorKind::Usage, "parse", "the text ends without 'return'");
}

}  // namespace tenon
