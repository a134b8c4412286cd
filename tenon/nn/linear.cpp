#include "tenon/nn/linear.h"

#include <vector>

#include "tenon/expr/ops.h"

namespace tenon::nn {
namespace {
Expr with_bias(const Expr& y, const Expr& b) { return b ? y + b : y; }
}  // namespace

Expr linear(const Expr& x, const Expr& w, const Expr& b) { return with_bias(tenon::linear(cast(x, w.dtype()), w), b); }

Expr conv2d(const Expr& x, const Expr& w, const Expr& b, int64_t stride, Pads pads) {
  const Shape& f = w.shape();
  TENON_CHECK(Usage, f.rank() == 4, "conv2d") << "expected a filter [O,C,kh,kw], got " << f.str();
  const bool padded = pads.top || pads.left || pads.bottom || pads.right;
  if (f[2] == 1 && f[3] == 1 && stride == 1 && !padded) return linear(x, reshape(w, {f[0], f[1]}), b);
  return with_bias(tenon::conv2d(cast(x, w.dtype()), w, stride, {pads.top, pads.left, pads.bottom, pads.right}), b);
}

Expr linear(const Scope& s, const Expr& x, int64_t outputs, Bias bias) {
  const Expr b = bias == Bias::Yes ? s.small("bias", {outputs}) : Expr();
  return linear(x, s.weight("weight", {outputs, x.shape()[-1]}), b);
}

Expr packed_linear(const Scope& s, const Expr& x, std::initializer_list<std::pair<const char*, int64_t>> parts,
                   Bias bias) {
  std::vector<Expr> weights, biases;
  for (const auto& [part, outputs] : parts) {
    weights.push_back((s / part).weight("weight", {outputs, x.shape()[-1]}));
    if (bias == Bias::Yes) biases.push_back((s / part).small("bias", {outputs}));
  }
  const auto stacked = [](const std::vector<Expr>& all) { return all.size() == 1 ? all[0] : concat(all, 0); };
  return linear(x, stacked(weights), biases.empty() ? Expr() : stacked(biases));
}

Expr conv2d(const Scope& s, const Expr& x, int64_t outputs, int64_t kernel, int64_t stride, Pads pads) {
  const Expr w = s.weight("weight", {outputs, x.shape()[-1], kernel, kernel});
  return conv2d(x, w, s.small("bias", {outputs}), stride, pads);
}

Expr conv3x3(const Scope& s, const Expr& x, int64_t outputs) { return conv2d(s, x, outputs, 3, 1, Pads::all(1)); }

}  // namespace tenon::nn
