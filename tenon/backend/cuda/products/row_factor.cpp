#include "tenon/backend/cuda/products/row_factor.h"

#include <algorithm>
#include <array>
#include <vector>

#include "tenon/expr/ops.h"
#include "tenon/kernels/affine.h"
#include "tenon/kernels/form.h"

namespace tenon::cuda {
namespace {

// A function of `leaf` and numbers, element by element; `views`: through views too.
bool made_of(const Expr& e, const Expr& leaf, bool views) {
  if (e == leaf || literal_of(e)) return true;
  const bool follows = e->family() == Family::Pointwise || (views && e->family() == Family::View);
  return follows && !e->in.empty() &&
         std::all_of(e->in.begin(), e->in.end(), [&](const Expr& x) { return made_of(x, leaf, views); });
}

// The same function of `to`, without the views.
Expr made_anew(const Expr& e, const Expr& leaf, const Expr& to) {
  if (e == leaf) return to;
  if (const Node* literal = literal_of(e)) return broadcast(constant(to.graph(), literal->attrs.nums[0]), to.shape());
  if (e->family() == Family::View) return made_anew(e->in[0], leaf, to);
  std::vector<Expr> operands;
  for (const Expr& x : e->in) operands.push_back(made_anew(x, leaf, to));
  return to.graph().make(*e->type, operands, e->attrs);
}

}  // namespace

std::optional<RowFactor> row_factor(const Expr& value, DType unit) {
  Expr product = value;
  while (product->type->round && (product->attrs.dtype == unit || product->attrs.dtype == DType::F32))
    product = product->in[0];
  if (!product.is<nodes::Mul>()) return std::nullopt;
  for (const size_t i : {0, 1}) {
    const Expr &rows = product->in[i], &repeated = product->in[1 - i];
    if (!is_view_chain(rows)) continue;
    std::vector<Expr> reductions = topological(std::array{repeated});
    std::erase_if(reductions, [](const Expr& e) { return e->family() != Family::Reduce; });
    if (reductions.size() != 1) continue;
    const Expr& r = reductions.front();
    const bool over_rows =
        r->attrs.ints[0] == static_cast<int64_t>(ReduceOver::Last) && r->in[0].shape() == rows.shape();
    if (over_rows && made_of(r->in[0], rows, false) && made_of(repeated, r, true)) return RowFactor{rows, r, repeated};
  }
  return std::nullopt;
}

Expr reduced_part(const RowFactor& f, const Expr& x) { return made_anew(f.reduction->in[0], f.rows, x); }

Expr factor_of(const RowFactor& f, const Expr& reduced) { return made_anew(f.factor, f.reduction, reduced); }

}  // namespace tenon::cuda
