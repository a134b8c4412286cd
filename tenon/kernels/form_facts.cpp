// Queries on values in form.
#include <algorithm>
#include <array>

#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"
#include "tenon/kernels/view_facts.h"

namespace tenon {

std::string acc_name(int lane) { return "%acc." + std::to_string(lane); }

bool is_statistic(const Expr& e) {
  return e->family() == Family::Reduce && e->type->reduce_of_moments &&
         e->attrs.ints[0] == static_cast<int64_t>(ReduceOver::Inner);
}

Expr statistic_below(const Expr& e) {
  Expr x = e;
  while (x.is<nodes::Reshape>()) x = x->in[0];
  return is_statistic(x) ? x : Expr();
}

bool is_row_reduction(const Expr& e) {
  return e->family() == Family::Reduce && e->attrs.ints[0] == static_cast<int64_t>(ReduceOver::Last);
}

bool reduces_rows(const Expr& value) {
  return std::ranges::any_of(topological(std::array{value}), [](Expr e) { return e->family() == Family::Reduce; });
}

Shape domain_of(const Expr& value) {
  for (const Expr& e : topological(std::array{value}))
    if (e->family() == Family::Reduce) return e->in[0].shape();
  return value.shape();
}

bool of_weights_only(const Expr& hole) {
  return hole->rate == Rate::Constant && std::ranges::all_of(topological(std::array{hole}), [](const Expr& e) {
           return e->family() != Family::Anchor && (!is_memory_leaf(e) || e.is<nodes::Param>());
         });
}

const Node* literal_of(const Expr& e) {
  Expr below = e;
  while (below->family() == Family::View) below = below->in[0];
  if (!below.is<nodes::Constant>()) return nullptr;
  for (Expr view = e; view != below; view = view->in[0])
    if (const ViewFacts facts = view_facts(view); facts.fills || facts.joins || facts.looks_up) return nullptr;
  return below.get();
}

}  // namespace tenon
