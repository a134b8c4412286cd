// Folds constant scales before and after linear layers into their weights.
#include <algorithm>
#include <cmath>

#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/kernels/view_facts.h"
#include "tenon/plan/rewrite.h"

namespace tenon {
namespace {

// `e` as a factor per column: rank 0 (a literal) or [channels]. Empty if it is not such a constant.
Expr channel_factor(const Expr& e, int64_t channels) {
  if (e->rate != Rate::Constant) return {};
  Expr x = e;
  while (x.is<nodes::Broadcast>()) x = x->in[0];
  if (x.is<nodes::Constant>()) return x;
  if (x.dtype() != DType::F32) return {};
  const Shape& s = x.shape();
  return s.cols() == channels && s.numel() == channels ? reshape(x, {channels}) : Expr();
}

// y times (or divided by) a constant per column of y.
struct Scaled {
  Expr y, factor;
  explicit operator bool() const { return static_cast<bool>(factor); }
};

// Which of the two operands of `e` is such a constant, and the other one.
Scaled constant_operand(const Expr& e) {
  for (const size_t i : {1, 0})
    if (const Expr f = channel_factor(e->in[i], e.shape().cols())) return {e->in[1 - i], f};
  return {};
}

Scaled scaled_by_constant(const Expr& e) {
  if (e.is<nodes::Mul>()) return constant_operand(e);
  const Expr f = e.is<nodes::Div>() ? channel_factor(e->in[1], e.shape().cols()) : Expr();
  if (!f) return {};
  return {e->in[0], f.is<nodes::Constant>() ? constant(e.graph(), 1 / f->attrs.nums[0]) : constant(e.graph(), 1) / f};
}

// In f16, weights scaled by a literal far from 1 would overflow or lose digits. What vectors hold is not known.
bool near_one(const Expr& factor, double least = 1.0 / 16) {
  const double f = factor.is<nodes::Constant>() ? std::abs(factor->attrs.nums[0]) : 1;
  return f >= least && f <= 16;
}

// y plus a constant per column of y.
Scaled shifted_by_constant(const Expr& e) { return e.is<nodes::Add>() ? constant_operand(e) : Scaled(); }

// Quantised values must stay as they are: another scale would round them again or overflow.
bool is_quantized(const Expr& x) { return x.dtype() == DType::E4M3 || !is_float(x.dtype()); }

// A weight before it was rounded to the type it is multiplied in.
Expr unrounded(const Expr& w) {
  Graph& g = w.graph();
  if (w.dtype() == DType::F32) return w;
  if (w.is<nodes::Param>()) return param(g, w->attrs.text, DType::F32, w.shape());
  if (w.is<nodes::Cast>()) return cast(w->in[0], DType::F32);
  if (w->family() != Family::View || view_facts(w).looks_up) return cast(w, DType::F32);
  std::vector<Expr> in;
  for (const Expr& x : w->in) in.push_back(unrounded(x));
  return g.make(*w->type, in, w->attrs);
}

// Weights [N,K] times a factor of their rows (axis 0) or columns (axis 1), rounded once at the end.
Expr scaled_weight(const Expr& w, const Expr& factor, int axis) {
  const int64_t n = factor.shape().numel();
  const Expr f = factor.shape().rank() == 0 ? factor : reshape(factor, axis == 0 ? Shape{n, 1} : Shape{1, n});
  return cast(unrounded(w) * f, w.dtype());
}

class Folder {
 public:
  Folder(const Users& users, bool f16) : users_(users), f16_(f16) {}

  Expr operator()(const Expr& e, std::span<const Expr> in) const {
    if (constant_layer(e)) return in_front(e, in);
    const Scaled s = scaled(e);
    return s && ends_in_layer(s.y) ? behind(e, in) : Expr();
  }

 private:
  Scaled scaled(const Expr& e) const {
    const Scaled s = scaled_by_constant(e);
    return s && f16_ && !near_one(s.factor) ? Scaled() : s;
  }

  // True if `e` is a layer, perhaps scaled or shifted by constants, and none of these nodes has other readers.
  bool ends_in_layer(Expr e) const {
    for (;;) {
      if (!users_.only_one(e)) return false;
      if (constant_layer(e)) return true;
      const Scaled product = scaled(e), sum = shifted_by_constant(e);
      if (!product && !sum) return false;
      e = product ? product.y : sum.y;
    }
  }

  // (x w + b) f = x (w f) + b f. Operands are already folded: a layer followed by shifts.
  Expr behind(const Expr& e, std::span<const Expr> in) const {
    const Scaled s = scaled(e.graph().make(*e->type, in, e->attrs));
    return s ? times(s.y, s.factor) : Expr();
  }
  static Expr times(const Expr& y, const Expr& factor) {
    if (constant_layer(y)) return with_operands(y, {y->in[0], scaled_weight(y->in[1], factor, 0)});
    const Scaled shifted = shifted_by_constant(y);
    return times(shifted.y, factor) + shifted.factor * factor;
  }

  // (z f) w = z (f w), if only layers read z f.
  Expr in_front(const Expr& e, std::span<const Expr> in) const {
    const Expr& x = e->in[0];
    const Expr product = x.is<nodes::Cast>() ? x->in[0] : x;
    if (!scaled(product) || !only_layers_read(x) || (product != x && !users_.only_one(product))) return {};
    const Scaled s = scaled(in[0].is<nodes::Cast>() ? in[0]->in[0] : in[0]);
    if (!s) return {};                                                           // folded into the layer below
    if (f16_ && s.y.dtype() != DType::F16 && !near_one(s.factor, 1)) return {};  // z may overflow where z f does not
    return with_operands(e, {cast(s.y, in[0].dtype()), scaled_weight(in[1], s.factor, 1)});
  }
  bool only_layers_read(const Expr& x) const {
    if (users_.is_root(x)) return false;
    return std::ranges::all_of(users_.of(x), [&](const Expr& u) { return constant_layer(u) && u->in[1] != x; });
  }

  const Users& users_;
  const bool f16_;  // some layers multiply in f16
};

}  // namespace

bool constant_layer(const Expr& e) {
  return e.is<nodes::Linear>() && e->in[1].shape().rank() == 2 && e->in[1]->rate == Rate::Constant &&
         !is_quantized(e->in[0]) && !is_quantized(e->in[1]);
}

std::vector<Expr> fold_scales(Graph& g, std::span<const Expr> roots, bool f16) {
  const Users users(roots);
  f16 = f16 || std::ranges::any_of(topological(roots), [](const Expr& e) { return e.dtype() == DType::F16; });
  const Folder folder(users, f16);
  const Replace fold = [&](const Expr& e, std::span<const Expr> in) { return folder(e, in); };
  return rebuild(g, roots, fold);
}

}  // namespace tenon
