// Joins two linear layers that are added into one product, if one of them is narrow: its result is never stored.
#include <algorithm>

#include "tenon/expr/ops.h"
#include "tenon/plan/rewrite.h"

namespace tenon {
namespace {

// A linear layer and its private epilogue: the factors of its result, and the type it is rounded to.
struct Term {
  Expr layer;
  std::vector<Expr> factors = {};
  std::optional<DType> rounding = {};
};

// The term `e` of a sum that is its only reader; without a layer if it is not such a term.
Term term_of(Expr e, const Users& users) {
  Term out;
  while (users.only_one(e)) {
    if (e.is<nodes::Linear>()) {
      out.layer = e;
      break;
    }
    if (e.is<nodes::Cast>() && out.factors.empty() && !out.rounding) {
      out.rounding = e.dtype();
      e = e->in[0];
    } else if (e.is<nodes::Mul>() && (e->in[0].is<nodes::Broadcast>() || e->in[1].is<nodes::Broadcast>())) {
      const size_t factor = e->in[1].is<nodes::Broadcast>() ? 1 : 0;
      out.factors.push_back(e->in[factor]);
      e = e->in[1 - factor];
    } else {
      break;
    }
  }
  return out;
}

}  // namespace

std::vector<Expr> join_branches(Graph& g, std::span<const Expr> roots, const Target& target) {
  if (!target.runs) return {roots.begin(), roots.end()};
  const Users users(roots);
  Memo memo;
  const Replace join = [&](const Expr& e, std::span<const Expr>) -> Expr {
    if (!e.is<nodes::Add>()) return {};
    Term wide = term_of(e->in[0], users), narrow = term_of(e->in[1], users);
    if (!wide.layer || !narrow.layer || wide.layer == narrow.layer) return {};
    const auto depth = [](const Term& t) { return t.layer->in[0].shape()[-1]; };
    if (depth(wide) < depth(narrow)) std::swap(wide, narrow);
    const bool fits = narrow.factors.empty() && wide.factors.size() <= nodes::BranchedLinear::kMaxFactors &&
                      wide.layer.shape() == narrow.layer.shape() && wide.layer->rate == narrow.layer->rate &&
                      wide.layer->in[1].shape().rank() == 2 && narrow.layer->in[1].shape().rank() == 2 &&
                      narrow.layer->in[0].dtype() == narrow.layer->in[1].dtype();
    if (!fits) return {};
    std::vector<Expr> factors;
    for (const Expr& f : wide.factors) factors.push_back(memo.at(f.get()));
    const Expr sum = branched_linear(memo.at(wide.layer.get()), memo.at(narrow.layer.get()), factors);
    const auto is_view = [](const Expr& x) { return x->family() == Family::View; };
    // An update may have to come between two layers that read rows of a state.
    if (!target.runs(sum) || any_below(sum->in, state_of, is_view)) return {};
    if (!wide.rounding) return sum;
    const Expr rounded = cast(sum, *wide.rounding);
    const auto takes_any = [](const Expr& u) { return u->family() == Family::Pointwise; };
    const bool narrower = !users.is_root(e) && std::ranges::all_of(users.of(e), takes_any);
    return narrower ? rounded : cast(rounded, DType::F32);
  };
  return rebuild(g, roots, join, memo);
}

}  // namespace tenon
