// Printing of expressions. A node is `name<attributes>(operands)`; the attributes are the quoted text, element type,
// shape, integers and numbers, in that order; <> is omitted if there are none. A number always contains a '.', an
// exponent, inf or nan, so that it does not read back as an integer.
#include <charconv>
#include <cmath>

#include "tenon/core/line.h"
#include "tenon/core/text.h"
#include "tenon/expr/expr.h"
#include "tenon/expr/node_type.h"

namespace tenon {

namespace {

// The shortest text that parses to the same double.
std::string number(double x) {
  if (std::isnan(x)) return "nan";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), x).ptr;
  std::string out(buffer, end);
  if (std::isfinite(x) && out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

}  // namespace

std::string print_node(const Expr& e, const std::function<std::string(const Expr&)>& operand_name) {
  const Attrs& a = e->attrs;
  std::vector<std::string> items, operands;
  if (!a.text.empty()) items.push_back(quoted(a.text));
  if (a.dtype) items.emplace_back(name_of(*a.dtype));
  if (a.dims) items.push_back(a.dims->str());
  for (int64_t i : a.ints) items.push_back(std::to_string(i));
  for (double x : a.nums) items.push_back(number(x));
  for (const Expr& x : e->in) operands.push_back(operand_name(x));
  const std::string attributes = items.empty() ? "" : "<" + joined(items, ",") + ">";
  return std::string(e->name()) + attributes + "(" + joined(operands) + ")";
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
