#include "tenon/backend/cuda/products/row_factor.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "tenon/expr/ops.h"
#include "tenon/kernels/affine.h"
#include "tenon/kernels/form.h"

namespace tenon::cuda {
namespace {

// True if `e` is an elementwise function of `leaf` and literals; `views`: views are allowed too.
bool made_of(const Expr& e, const Expr& leaf, bool views) {
  bool all = true;
  walk_below({e}, [&](const Expr& x) {
    if (x == leaf || literal_of(x)) return false;
    all = all && !x->in.empty() && (x->family() == Family::Pointwise || (views && x->family() == Family::View));
    return all;
  });
  return all;
}

// The same function of `to`, without the views.
Expr made_anew(const Expr& e, const Expr& leaf, const Expr& to) {
  Memo memo{{leaf.get(), to}};
  const auto without_views = [&](const Expr& x, std::span<const Expr> in) {
    if (const Node* literal = literal_of(x)) return broadcast(constant(to.graph(), literal->attrs.nums[0]), to.shape());
    return x->family() == Family::View ? in[0] : Expr();
  };
  return rebuild(to.graph(), e, without_views, memo);
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
