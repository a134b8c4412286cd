#include "tenon/nn/side_branch.h"

#include <algorithm>
#include <vector>

#include "tenon/expr/ops.h"

namespace tenon::nn {
namespace {

std::string beside(std::string_view weight, std::string_view name) {
  constexpr std::string_view kEnd = ".weight";
  TENON_CHECK(Internal, weight.ends_with(kEnd), "side branch") << "'" << weight << "' is no layer's weight";
  return std::string(weight.substr(0, weight.size() - kEnd.size() + 1)).append(name);
}

// The parameters that a layer's matrix is made of, one below the other; none if it is made otherwise.
std::vector<Expr> matrices(const Expr& weight, const std::set<std::string>& wanted) {
  std::vector<Expr> parts{weight};
  if (weight.is<nodes::Concat>() && weight->attrs.ints[0] == 0) parts.assign(weight->in.begin(), weight->in.end());
  for (const Expr& part : parts) {
    const Expr leaf = part.is<nodes::Reshape>() ? part->in[0] : part;  // a filter of one pixel is a matrix
    if (!leaf.is<nodes::Param>() || part.shape().rank() != 2 || !wanted.contains(leaf->attrs.text)) return {};
  }
  return parts;
}

// Branches of several weights are one: A's one below the other, B's on a diagonal of blocks.
Expr branch(const Expr& x, const std::vector<Expr>& weights, int64_t rank) {
  Graph& g = x.graph();
  const auto count = static_cast<int64_t>(weights.size());
  std::vector<Expr> down, up;
  for (int64_t i = 0; i < count; ++i) {
    const Expr& w = weights[static_cast<size_t>(i)];
    const std::string& name = (w.is<nodes::Reshape>() ? w->in[0] : w)->attrs.text;
    down.push_back(param(g, side_down(name), w.dtype(), {rank, w.shape()[1]}));
    const Expr b = param(g, side_up(name), w.dtype(), {w.shape()[0], rank});
    up.push_back(count == 1 ? b : pad(b, {0, 0, i * rank, (count - 1 - i) * rank}));
  }
  const Expr a = concat(down, 0), b = concat(up, 0);
  return tenon::linear(cast(tenon::linear(x, a), b.dtype()), b);
}

}  // namespace

std::string side_down(std::string_view weight) { return beside(weight, "lora_A"); }
std::string side_up(std::string_view weight) { return beside(weight, "lora_B"); }

Expr with_side_branches(const Expr& root, const SideBranches& branches) {
  if (branches.rank == 0 || !branches.weights) return root;
  Graph& g = root.graph();
  const Replace replace = [&](const Expr& e, std::span<const Expr> in) -> Expr {
    if (!e.is<nodes::Linear>()) return {};
    const std::vector<Expr> weights = matrices(in[1], *branches.weights);
    if (weights.empty()) return {};
    return g.make(*e->type, in, e->attrs) + branch(in[0], weights, branches.rank);
  };
  Memo memo;
  return rebuild(g, root, replace, memo);
}

}  // namespace tenon::nn
