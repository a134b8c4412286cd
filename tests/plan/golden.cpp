#include "tests/plan/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "tenon/core/text.h"
#include "tenon/explain/readable.h"
#include "tenon/expr/ops.h"

namespace tenon {
namespace {

std::string numbered(std::string prefix, size_t number) { return prefix += std::to_string(number); }

// Values by the launch that makes them, so that adding or removing a launch changes no other line.
using Makers = std::map<std::string, std::string>;

// "slice<2,0,320>", without shapes, which follow from the operands.
std::string node_text(const Expr& e) {
  std::string attributes;
  const auto item = [&](const std::string& text) { attributes += (attributes.empty() ? "" : ",") + text; };
  if (e->family() == Family::Anchor) item(std::string(name_of(e->attrs.dtype.value_or(DType::F32))));
  for (const int64_t i : e->attrs.ints) item(std::to_string(i));
  for (const double x : e->attrs.nums) item(number_text(x));
  std::string out(e->name());
  if (!attributes.empty() && e->family() != Family::Reduce) out.append("<").append(attributes).append(">");
  return e->family() == Family::Anchor ? "[" + out + "]" : out;
}

// "%3=add(%2,<conv1>)": every node of a body with its operands, omitted if the only one is the preceding node.
std::string body_text(const Launch& l, const Makers& makers) {
  const Readable readable(l.name);
  std::vector<Expr> roots;
  for (const Output& o : l.outputs) roots.push_back(o.value);
  std::unordered_map<const Node*, std::string> names;
  std::string out;
  size_t number = 0;
  for (const Expr& e : topological(roots)) {
    if (e->family() == Family::Leaf) {
      const auto maker = makers.find(e->attrs.text);
      names[e.get()] = maker != makers.end() ? std::string("<").append(maker->second) + ">" : readable.leaf(e);
      continue;
    }
    const std::string before = numbered("%", number), name = numbered("%", ++number);
    std::string operands;
    for (const Expr& x : e->in) operands += (operands.empty() ? "" : ",") + names.at(x.get());
    out += " " + name + "=" + node_text(e);
    if (operands != before) out += "(" + operands + ")";
    names[e.get()] = name;
  }
  out += " ->";
  for (const Expr& r : roots) out += " " + names.at(r.get()) + " " + std::string(name_of(r.dtype())) + r.shape().str();
  return out;
}

}  // namespace

std::string summary(const Plan& plan) {
  std::ostringstream out;
  Makers makers;
  for (const Phase& p : plan.phases) {
    out << "phase " << name_of(p.rate) << ": " << p.launches.size() << " launches\n";
    for (const Launch& l : p.launches) {
      out << l.skeleton << " " << l.name << ":" << body_text(l, makers) << "\n";
      for (size_t i = 0; i < l.outputs.size(); ++i)
        makers[l.outputs[i].buffer] = i ? numbered(l.name + ".", i) : l.name;
    }
  }
  return out.str();
}

void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(TENON_SOURCE_DIR) + "/tests/golden/" + name;
  if (std::getenv("TENON_UPDATE_GOLDEN")) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream in(path);
  std::stringstream golden;
  golden << in.rdbuf();
  std::istringstream a(golden.str()), b(text);
  std::string x, y;
  for (int line = 1; std::getline(a, x) || !a.eof(); ++line) {
    if (!std::getline(b, y)) y.clear();
    ASSERT_EQ(x, y) << path << " line " << line;
  }
  ASSERT_EQ(golden.str(), text) << path;
}

}  // namespace tenon
