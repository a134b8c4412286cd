#include "tenon/backend/cuda/products/row_factor.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"
#include "tenon/kernels/view_facts.h"

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
  Memo memo;
  for (const Expr& below : topological(std::array{leaf})) memo[below.get()] = below;
  memo[leaf.get()] = to;
  const auto without_views = [&](const Expr& x, std::span<const Expr> in) {
    if (const Node* literal = literal_of(x)) return broadcast(constant(to.graph(), literal->attrs.nums[0]), to.shape());
    return x->family() == Family::View ? in[0] : Expr();
  };
  return rebuild(to.graph(), e, without_views, memo);
}

Expr without_roundings(Expr e, DType unit) {
  while (e->type->round && (e->attrs.dtype == unit || e->attrs.dtype == DType::F32)) e = e->in[0];
  return e;
}

// Takes a stored constant per column off `e`, the operand of a T; empty if there is none.
template <class T>
Expr take_columns(Expr& e, DType unit) {
  if (!e.is<T>()) return {};
  for (const size_t i : {1, 0}) {
    Expr x = e->in[i];
    while (x.is<nodes::Broadcast>()) x = x->in[0];
    const int64_t k = e.shape()[-1];
    if (!of_weights_only(x) || !is_view_chain(x) || x.shape().numel() != k || x.shape().cols() != k) continue;
    e = without_roundings(e->in[1 - i], unit);
    return reshape(x, {k});
  }
  return {};
}

bool is_mean(Expr e, const Expr& of) {
  while (e.is<nodes::Broadcast>()) e = e->in[0];
  return e.is<nodes::Mean>() && e->attrs.ints[0] == static_cast<int64_t>(ReduceOver::Last) && e->in[0] == of;
}

// The weights before they are rounded, in f32.
Expr unrounded(const Expr& weights) {
  const Expr w = without_roundings(weights, weights.dtype());
  if (!is_view_chain(w)) return cast(w, DType::F32);
  Graph& g = w.graph();
  Memo memo;
  for (const Expr& e : topological(std::array{w}))
    if (e.is<nodes::Param>() && !is_computed(e) && is_float(e.dtype()))
      memo[e.get()] = param(g, e->attrs.text, DType::F32, e.shape());
  return cast(rebuild(g, w, memo), DType::F32);
}

}  // namespace

std::optional<RowFactor> row_factor(const Expr& value, DType unit) {
  const Expr product = without_roundings(value, unit);
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

std::optional<CentredNorm> centred_norm(const Expr& value, DType unit) {
  CentredNorm out;
  Expr e = without_roundings(value, unit);
  out.shift = take_columns<nodes::Add>(e, unit);
  out.gain = take_columns<nodes::Mul>(e, unit);
  if (!e.is<nodes::Mul>()) return std::nullopt;
  for (const size_t i : {0, 1}) {
    const Expr &apart = e->in[i], &repeated = e->in[1 - i];
    if (!apart.is<nodes::Sub>() || !is_view_chain(apart->in[0]) || !is_mean(apart->in[1], apart->in[0])) continue;
    Expr variance = repeated;
    while (variance->family() != Family::Reduce && !variance->in.empty()) variance = variance->in[0];
    if (variance->in.empty() || !is_mean(variance, variance->in[0])) continue;
    const Expr& square = variance->in[0];
    if (!square.is<nodes::Mul>() || square->in[0] != apart || square->in[1] != apart) continue;
    if (!made_of(repeated, variance, true)) continue;
    out.factor = {apart->in[0], variance, repeated};
    return out;
  }
  return std::nullopt;
}

Expr centred_weights(const CentredNorm& norm, const Expr& weights) {
  const Expr w = unrounded(weights), scaled = norm.gain ? w * norm.gain : w;
  return scaled - mean(scaled);
}

Expr sums_of_weights(const CentredNorm& norm, const Expr& weights, DType unit) {
  return sum(round(centred_weights(norm, weights), unit));
}

Expr shift_of_weights(const CentredNorm& norm, const Expr& weights) {
  return norm.shift ? sum(unrounded(weights) * norm.shift) : Expr();
}

}  // namespace tenon::cuda
