#include <unordered_set>

#include "tenon/expr/ops.h"
#include "tenon/plan/rewrite.h"

namespace tenon {
namespace {

// A part of one of several tensors side by side, taken from that one; empty if it is of more of them.
Expr part_of_one(const Node& slice_node, const Expr& joined) {
  const auto& ints = slice_node.attrs.ints;
  if (!joined.is<nodes::Concat>() || joined->attrs.ints[0] != ints[0]) return {};
  const int axis = static_cast<int>(ints[0]);
  int64_t begin = ints[1];
  for (const Expr& x : joined->in) {
    const int64_t extent = x.shape()[axis], length = ints[2] - ints[1];
    if (begin >= 0 && begin + length <= extent) return slice(x, axis, begin, begin + length);
    begin -= extent;
  }
  return {};
}

}  // namespace

std::vector<Expr> take_apart(Graph& g, std::span<const Expr> roots, const Target& target) {
  std::unordered_set<const Node*> gone;  // what now stands for others
  const Replace replace = [&](const Expr& e, std::span<const Expr> in) -> Expr {
    if (e.is<nodes::Slice>() && gone.contains(in[0].get())) return part_of_one(*e, in[0]);
    if (!e->type->apart) return {};
    const Expr anchor = g.make(*e->type, in, e->attrs);
    if (target.runs && target.runs(anchor)) return anchor;
    const Expr parts = e->type->apart(anchor);
    gone.insert(parts.get());
    return parts;
  };
  return rebuild(g, roots, replace);
}

}  // namespace tenon
