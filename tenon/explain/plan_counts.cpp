#include "tenon/explain/plan_counts.h"

#include <algorithm>
#include <set>

#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/expr/state.h"
#include "tenon/kernels/form.h"

namespace tenon {
namespace {

// The count to which a launch without an anchor adds: one that only moves data counts by the view that moves it.
int& counter_of(const Launch& launch, PlanCounts& counts) {
  const std::vector<Expr> nodes = nodes_of(launch);
  const auto any = [&](const auto& is) { return std::ranges::any_of(nodes, is); };
  if (any([](const Expr& e) { return e->family() == Family::Pointwise && !e->type->round; })) return counts.elementwise;
  if (any([](const Expr& e) { return e.is<nodes::Resize>(); })) return counts.upsample;
  if (any([](const Expr& e) { return e.is<nodes::Concat>(); })) return counts.concat;
  if (any([](const Expr& e) { return e.is<nodes::Permute>(); })) return counts.permute;
  return counts.elementwise;
}

}  // namespace

PlanCounts counts_of(const Plan& plan, Rate rate) {
  PlanCounts counts;
  const Phase* const phase = plan.phase(rate);
  if (!phase) return counts;
  for (const Launch& l : phase->launches) {
    ++counts.total;
    if (l.skeleton == "map") ++counter_of(l, counts);
  }
  return counts;
}

int64_t bytes_moved(const Launch& launch) {
  const Expr anchor = anchor_of(launch);
  int64_t bytes = 0;
  // Operands of the anchor that backends store in its arithmetic type.
  std::set<const Node*> kept;
  if (anchor && arithmetic_of(anchor))
    for (const Expr& x : std::span(anchor->in).first(static_cast<size_t>(anchor->type->factors))) {
      const int64_t saved = size_of(x.dtype()) - size_of(*arithmetic_of(anchor));
      if (saved >= 0 && of_weights_only(x) && kept.insert(x.get()).second) bytes -= x.shape().numel() * saved;
    }
  std::vector<Expr> values;
  for (const Output& o : launch.outputs) {
    bytes += bytes_of(written_by(o.value).shape(), o.value.dtype());
    values.push_back(o.value);
  }
  return bytes + bytes_read(values, [&](const Expr& e) { return is_memory_leaf(e) || kept.contains(e.get()); });
}

int64_t bytes_moved(const Plan& plan, Rate rate) {
  int64_t bytes = 0;
  if (const Phase* const phase = plan.phase(rate))
    for (const Launch& l : phase->launches) bytes += bytes_moved(l);
  return bytes;
}

}  // namespace tenon
