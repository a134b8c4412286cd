// Printing of expressions. A node is `name<attributes>(operands)`; the attributes are the quoted text, element type,
// shape, integers and numbers, in that order; <> is omitted if there are none. A number always contains a '.', an
// exponent, inf or nan, so that it does not read back as an integer.
#include <charconv>
#include <cmath>

#include "tenon/core/line.h"
#include "tenon/expr/expr.h"
#include "tenon/expr/node_type.h"

namespace tenon {

namespace {

// The shortest text that parses to the same double.
std::string number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), x).ptr;
  std::string out(buffer, end);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

}  // namespace

std::string print_node(const Expr& e, const std::function<std::string(const Expr&)>& operand_name) {
  const Attrs& a = e->attrs;
  std::string inner;
  const auto item = [&](std::string_view text) {
    if (!inner.empty()) inner += ',';
    inner += text;
  };
  if (!a.text.empty()) item(quoted(a.text));
  if (a.has_dtype) item(name_of(a.dtype));
  if (a.has_dims) item(a.dims.str());
  for (int64_t i : a.ints) item(std::to_string(i));
  for (double x : a.nums) item(number(x));

  std::string out(e->name());
  if (!inner.empty()) out.append("<").append(inner).append(">");
  out += '(';
  for (size_t i = 0; i < e->in.size(); ++i) {
    if (i) out += ", ";
    out += operand_name(e->in[i]);
  }
  return out += ')';
}

std::string print(std::span<const Expr> roots) {
  std::unordered_map<const Node*, size_t> numbers;
  const auto name = [&](const Expr& e) {
    TENON_CHECK(Usage, e, "print") << "an empty expression has no text";
    return "%" + std::to_string(numbers.at(e.get()));
  };
  std::string out;
  for (const Expr& e : topological(roots)) {
    numbers.emplace(e.get(), numbers.size());
    out.append(name(e)).append(" = ").append(print_node(e, name)).append("\n");
  }
  out += "return";
  for (size_t i = 0; i < roots.size(); ++i) out.append(i ? ", " : " ").append(name(roots[i]));
  return out += '\n';
}

std::string print(const Expr& root) { return print(std::span<const Expr>(&root, 1)); }

}  // namespace tenon
