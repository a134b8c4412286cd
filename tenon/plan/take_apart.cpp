#include <algorithm>
#include <unordered_set>

#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"
#include "tenon/plan/rewrite.h"

namespace tenon {
std::vector<Expr> take_apart(Graph& g, std::span<const Expr> roots, const Target& target) {
  std::unordered_set<const Node*> gone;  // results that stand for removed nodes
  std::vector<Expr> of_keys;
  for (const Expr& e : topological(roots))
    if (e.is<nodes::AttentionKeyGradient>()) of_keys.push_back(e);
  const Replace replace = [&](const Expr& e, std::span<const Expr> in) -> Expr {
    if (e.is<nodes::Slice>()) {
      const Expr of = in[0].is<nodes::Cast>() ? in[0]->in[0] : in[0];
      const auto& at = e->attrs.ints;
      if (gone.contains(of.get())) return cast(slice_of_part(of, static_cast<int>(at[0]), at[1], at[2]), e.dtype());
    }
    if (e->family() == Family::Reduce && !is_row_reduction(e) && !is_statistic(e)) {  // rows of a transposed view
      const Shape image = {e.shape()[0], in[0].shape().numel() / std::max<int64_t>(e.shape().numel(), 1),
                           e.shape()[-1]};
      const Expr rows = permute(reshape(in[0], image), {0, 2, 1});
      return reshape(g.make(*e->type, std::array{rows}, {.ints = {0}}), e.shape());
    }
    if (e->family() != Family::Anchor || !e->type->apart) return {};
    const Expr anchor = g.make(*e->type, in, e->attrs);
    const auto beside = [&](const Expr& of) { return of->in == e->in && of->attrs == e->attrs; };
    if (e.is<nodes::AttentionQueryGradient>() && target.runs && std::ranges::any_of(of_keys, beside))
      if (const Expr sums = make_node<nodes::AttentionQuerySums>(in, e->attrs); target.runs(sums)) return sums;
    if (target.runs && target.runs(anchor)) return anchor;
    const Expr parts = e->type->apart(anchor);
    gone.insert(parts.get());
    return parts;
  };
  return rebuild(g, roots, replace);
}

}  // namespace tenon
