// Queries on values in form, and copying a form.
#include <algorithm>
#include <array>

#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"
#include "tenon/kernels/view_facts.h"

namespace tenon {

std::string acc_name(int lane) { return "%acc." + std::to_string(lane); }

int acc_lane(const Expr& leaf) {
  if (!leaf.is<nodes::Input>()) return -1;
  for (int lane = 0; lane < kMaxFormLanes; ++lane)
    if (leaf->attrs.text == acc_name(lane)) return lane;
  return -1;
}

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

Form Form::copy() const {
  Form out = *this;
  out.graph = std::make_shared<Graph>();
  Memo memo;
  const auto rebuild_here = [&](Expr& e) { e = rebuild(*out.graph, e, memo); };
  if (anchor) {
    std::vector<Expr> operands;
    for (const Expr& x : anchor->in)
      operands.push_back(input(*out.graph, "%operand." + std::to_string(operands.size()), x.dtype(), x.shape()));
    out.anchor = out.graph->make(*anchor->type, operands, anchor->attrs);
  }
  for (Let& let : out.lets) rebuild_here(let.leaf), rebuild_here(let.value);
  for (Expr& hole : out.holes) rebuild_here(hole);
  for (std::vector<FormOutput>* written : {&out.outputs, &out.updates})
    for (FormOutput& o : *written) rebuild_here(o.value), rebuild_here(o.place);
  return out;
}

}  // namespace tenon
