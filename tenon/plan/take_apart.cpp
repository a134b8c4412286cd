#include <unordered_set>

#include "tenon/expr/ops.h"
#include "tenon/plan/rewrite.h"

namespace tenon {
std::vector<Expr> take_apart(Graph& g, std::span<const Expr> roots, const Target& target) {
  std::unordered_set<const Node*> gone;  // results that stand for removed nodes
  const Replace replace = [&](const Expr& e, std::span<const Expr> in) -> Expr {
    if (e.is<nodes::Slice>() && gone.contains(in[0].get()))
      return slice_of_part(in[0], static_cast<int>(e->attrs.ints[0]), e->attrs.ints[1], e->attrs.ints[2]);
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
