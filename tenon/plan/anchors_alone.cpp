// A partition for comparison: like a library's kernel, an anchor's launch has at most a bias and a rounding; the maths
// between anchors takes as few launches as possible.
#include <algorithm>

#include "tenon/expr/ops.h"
#include "tenon/plan/partition.h"

namespace tenon {
namespace {

bool adds_bias(const Expr& e) {
  return e.is<nodes::Add>() &&
         std::ranges::any_of(e->in, [](const Expr& x) { return static_cast<bool>(constant_row(x)); });
}

}  // namespace

void Partitioner::emit_alone(const Expr& anchor) {
  emitted_anchor_.insert(anchor.get());
  for (const Expr& x : anchor->in) emit_below_views(x);
  Expr last = anchor;
  while (!wanted_.contains(last.get()) && users_.of(last).size() == 1) {
    const Expr& u = users_.of(last)[0];
    if (!adds_bias(u) && !u.is<nodes::Cast>()) break;
    last = u;
  }
  Region region = with_companions(anchor);
  region.erase(anchor.get());
  std::vector<Expr> values = frontier(region);
  values.insert(values.begin(), last);
  commit(*attempt_or_materialize(values), values, {});
}

void Partitioner::emit_below_views(const Expr& e) {
  if (e->rate == Rate::Constant || e->family() == Family::Leaf || in_memory(e)) return;
  if (is_update(e)) return emit_update(e);
  if (e->family() != Family::View) return emit_with_shared(e);
  for (const Expr& x : e->in) emit_below_views(x);
}

// Emits one launch for `e` and for those values below it that have other readers too.
void Partitioner::emit_with_shared(const Expr& e) {
  Region cone;
  std::vector<Expr> values{e};
  walk_below(
      {e}, [&](const Expr& x) { return x->family() != Family::Leaf && !in_memory(x) && cone.insert(x.get()).second; });
  for (const Node* n : cone) {
    const Expr x(n);
    if (x == e || x->family() != Family::Pointwise || x.shape() != e.shape() || !leaves(x, cone)) continue;
    std::vector<Expr> more = values;
    more.push_back(x);
    std::ranges::sort(more, {}, [](const Expr& v) { return v->id; });
    if (attempt(more)->launch.form) values = std::move(more);
  }
  commit(*attempt_or_materialize(values), values, {});
}

}  // namespace tenon
