// Two linear layers with nothing between them but a bias and a residual become one, whose weights are multiplied with
// each other when they are loaded.
#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>

#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/plan/rewrite.h"

namespace tenon {
namespace {

// Weights that are made of quantised ones stay as they are.
bool made_of_quantized(const Expr& w) { return std::ranges::any_of(topological(std::array{w}), quantized); }

// Who reads it reads the same rows.
bool keeps_rows(const Expr& e) { return e.is<nodes::Reshape>() && e.shape().cols() == e->in[0].shape().cols(); }

Shape rows_like(const Shape& like, int64_t cols) {
  Shape s = like;
  s[-1] = cols;
  return s;
}

// layer(h, w) + bias + residual, each of which but the layer may be absent.
struct Inner {
  Expr layer, bias, residual;
};

class Composer {
 public:
  Composer(const Users& users, std::span<const Expr> results) : users_(users) {
    for (const Expr& r : results) results_.insert(r.get());
  }

  Expr operator()(const Expr& e, const Memo& memo) const {
    if (!constant_layer(e) || made_of_quantized(e->in[1])) return {};
    const std::optional<Inner> inner = inner_of(e->in[0]);
    if (!inner || made_of_quantized(inner->layer->in[1]) || !saves(*inner, e->in[1])) return {};
    return composed(e, *inner, memo);
  }

 private:
  bool only_one_user(const Expr& e) const { return users_.of(e).size() == 1 && !results_.contains(e.get()); }

  // What stands in front of a layer, if nobody else reads it. A cast is where it would have been stored, and falls away
  // with that; a rounding point stays.
  std::optional<Inner> inner_of(Expr x) const {
    const DType type = x.dtype();
    while (only_one_user(x) && (keeps_rows(x) || x.is<nodes::Cast>()) && !quantized(x->in[0])) x = x->in[0];
    Inner out;
    std::vector<Expr> terms{x};
    const Shape shape = x.shape();
    while (!terms.empty()) {
      const Expr t = terms.back();
      terms.pop_back();
      if (t.is<nodes::Add>() && t.shape() == shape && only_one_user(t))
        terms.insert(terms.end(), t->in.begin(), t->in.end());
      else if (!take(t, shape, type, out))
        return {};
    }
    return out.layer ? std::optional(out) : std::nullopt;
  }

  bool take(const Expr& t, const Shape& shape, DType type, Inner& out) const {
    if (t.shape() != shape) return false;
    const bool bias =
        t.is<nodes::Broadcast>() && t->in[0]->rate == Rate::Constant && t->in[0].shape() == Shape{shape.cols()};
    const bool layer = constant_layer(t) && only_one_user(t) && t->in[0].dtype() == type;
    const bool residual = t.dtype() == type && t->rate != Rate::Constant && stored_anyway(t);
    Expr& place = bias ? out.bias : layer ? out.layer : out.residual;
    if (place || !(bias || layer || residual)) return false;
    place = bias ? t->in[0] : t;
    return true;
  }

  // Others read it too: the new layer adds no store.
  bool stored_anyway(Expr e) const {
    while (e->family() == Family::View && users_.of(e).size() == 1) e = e->in[0];
    return is_memory_leaf(e) || users_.of(e).size() > 1 || results_.contains(e.get());
  }

  // No more multiplications than before, for any number of rows.
  static bool saves(const Inner& inner, const Expr& outer) {
    const int64_t in = inner.layer->in[1].shape()[1], middle = outer.shape()[1], out = outer.shape()[0];
    return (in + (inner.residual ? middle : 0)) * out <= middle * (in + out);
  }

  // Parts below have been rewritten already: `memo` has what they became.
  static Expr composed(const Expr& e, const Inner& inner, const Memo& memo) {
    const auto now = [&](const Expr& x) { return memo.at(x.get()); };
    const Expr layer = now(inner.layer), w2 = now(e->in[1]);
    if (!layer.is<nodes::Linear>() || layer->in[1].is<nodes::Materialize>()) return {};  // composed itself
    const Expr w1 = layer->in[1];
    const Shape rows = e->in[0].shape();
    const Expr second = unrounded(w2);
    const auto product = [&](const Expr& x, const Expr& w) { return multiplied_in(linear(x, w), DType::F32); };
    Expr w = cast(product(second, permute(unrounded(w1), {1, 0})), w2.dtype());
    Expr x = reshape(layer->in[0], rows_like(rows, w1.shape()[1]));
    if (inner.residual) {
      x = concat({x, reshape(now(inner.residual), rows)}, rows.rank() - 1);
      w = concat({w, w2}, 1);
    }
    const Expr y = with_operands(e, {x, materialize(w)});
    if (!inner.bias) return y;
    const int64_t middle = second.shape()[1], out = second.shape()[0];
    return y + materialize(reshape(product(reshape(unrounded(now(inner.bias)), {1, middle}), second), {out}));
  }

  const Users& users_;
  std::unordered_set<const Node*> results_;
};

}  // namespace

std::vector<Expr> compose_layers(Graph& g, std::span<const Expr> roots) {
  const Users users(roots);
  const Composer composer(users, roots);
  Memo memo;
  const Replace compose = [&](const Expr& e, std::span<const Expr>) { return composer(e, memo); };
  std::vector<Expr> out;
  for (const Expr& r : roots) out.push_back(rebuild(g, r, compose, memo));
  return out;
}

}  // namespace tenon
