// A partition for comparison: like a library's kernel, an anchor's launch has at most a bias and a rounding; the maths
// between anchors takes as few launches as possible.
#include "tenon/expr/ops.h"
#include "tenon/plan/partition.h"

namespace tenon {

void Partitioner::emit_alone(const Expr& anchor) {
  emitted_anchor_.insert(anchor.get());
  for (const Expr& x : anchor->in) emit_below_views(x);
  Expr last = anchor;
  while (!wanted_.contains(last.get()) && users_.of(last).size() == 1) {
    const Expr& u = users_.of(last)[0];
    const bool adds_bias = u.is<nodes::Add>() && (constant_row(u->in[0]) || constant_row(u->in[1]));
    if (!adds_bias && !u.is<nodes::Cast>()) break;
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
  if (e->family() != Family::View) return emit_stored({}, {e});
  for (const Expr& x : e->in) emit_below_views(x);
}

}  // namespace tenon
