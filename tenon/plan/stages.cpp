#include "tenon/plan/stages.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon {
namespace {

// Depth-first post-order that visits deeper operands first; `depth` is the length of the longest chain below a value.
std::vector<Expr> deep_operands_first(std::span<const Expr> roots,
                                      const std::unordered_map<const Node*, int64_t>& depth) {
  const auto by_depth = [&](const Expr& e) { return depth.at(e.get()); };
  std::vector<Expr> out, stack(roots.begin(), roots.end());
  std::ranges::stable_sort(stack, std::greater(), by_depth);  // visited from the last: the end of a forward pass
  std::unordered_set<const Node*> opened, done;
  while (!stack.empty()) {
    const Expr e = stack.back();
    if (!opened.insert(e.get()).second) {
      if (done.insert(e.get()).second) out.push_back(e);
      stack.pop_back();
      continue;
    }
    std::vector<Expr> in = e->in;
    std::ranges::stable_sort(in, {}, by_depth);
    for (const Expr& x : in)
      if (!opened.contains(x.get())) stack.push_back(x);
  }
  return out;
}

}  // namespace

Stages order_of_stages(std::span<const Expr> roots) {
  Stages out{topological(roots), {}};
  std::unordered_map<const Node*, int64_t> depth;
  double most = -1;
  for (const Expr& e : out.values) {
    const double own = e.is<nodes::Barrier>() ? e->attrs.nums[0] : -1;
    TENON_CHECK(Usage, std::isfinite(own), "barrier") << "the stage must be a finite number";
    double& stage = out.of.emplace(e.get(), own).first->second;
    int64_t& below = depth[e.get()];
    for (const Expr& x : e->in) {
      stage = std::max(stage, out.of.at(x.get()));
      below = std::max(below, depth.at(x.get()) + 1);
    }
    most = std::max(most, stage);
  }
  if (most >= 0) out.values = deep_operands_first(roots, depth);
  std::ranges::stable_sort(out.values, {}, [&](const Expr& e) { return out.of.at(e.get()); });
  return out;
}

}  // namespace tenon
