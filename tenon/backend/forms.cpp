#include "tenon/backend/forms.h"

#include "tenon/expr/ops.h"

namespace tenon {

Form own_copy(const Form& form) {
  Form out = form;
  out.graph = std::make_shared<Graph>();
  Memo memo;
  const auto rebuild_here = [&](Expr& e) { e = rebuild(*out.graph, e, memo); };
  if (form.anchor) {
    std::vector<Expr> operands;
    for (const Expr& x : form.anchor->in)
      operands.push_back(input(*out.graph, "%operand." + std::to_string(operands.size()), x.dtype(), x.shape()));
    out.anchor = out.graph->make(*form.anchor->type, operands, form.anchor->attrs);
  }
  // Every let, hole, value and place is set in a form.
  for (Let& let : out.lets) {
    rebuild_here(let.leaf);
    rebuild_here(let.value);
  }
  for (Expr& hole : out.holes) rebuild_here(hole);
  for (std::vector<FormOutput>* written : {&out.outputs, &out.updates})
    for (FormOutput& o : *written) {
      rebuild_here(o.value);
      rebuild_here(o.place);
    }
  return out;
}

int acc_lane(const Expr& leaf) {
  if (!leaf.is<nodes::Input>()) return -1;
  for (int lane = 0; lane < kMaxFormLanes; ++lane)
    if (leaf->attrs.text == acc_name(lane)) return lane;
  return -1;
}

Expr without_rounding(const Expr& e, DType type) { return e->type->round && e->attrs.dtype == type ? e->in[0] : e; }

int split_of_long_rows(const Shape& domain, int split) {
  constexpr int64_t kShortRow = 128;  // elements; shorter rows are merged
  int64_t columns = 1;
  for (int a = split; a < domain.rank(); ++a) columns *= domain[a];
  while (split > 0 && columns < kShortRow) columns *= domain[--split];
  return split;
}

}  // namespace tenon
