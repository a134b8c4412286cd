#include "tenon/nn/norm.h"

#include "tenon/expr/ops.h"

namespace tenon::nn {
namespace {

// Reduces each part of a concatenation of channels by itself.
Expr reduce_parts(const Expr& x, Expr (*reduce_one)(const Expr&)) {
  if (!x.is<nodes::Concat>() || x->attrs.ints[0] != x.shape().rank() - 1) return reduce_one(x);
  std::vector<Expr> parts;
  for (const Expr& part : x->in) parts.push_back(reduce_parts(part, reduce_one));
  return concat(parts, -1);
}

}  // namespace

Expr channel_sums(const Expr& x) {
  return reduce_parts(x, [](const Expr& part) { return sum(part, ReduceOver::Inner); });
}

Expr channel_square_sums(const Expr& x) {
  return reduce_parts(x, [](const Expr& part) { return sumsq(part, ReduceOver::Inner); });
}

Expr group_norm(const Expr& x, const GroupNorm& n, const Expr& gamma, const Expr& beta) {
  const int64_t samples = x.shape()[0], channels = x.shape()[-1];
  TENON_CHECK(Usage, n.groups > 0 && channels % n.groups == 0, "group_norm")
      << n.groups << " groups do not divide the " << channels << " channels of " << x.shape().str();
  const Expr sums = channel_sums(x), squares = channel_square_sums(x);
  const Shape grouped{samples, n.groups, channels / n.groups};
  const double count = static_cast<double>(x.shape().numel() / (samples * n.groups));
  const Expr mean = sum(reshape(sums, grouped)) / count;
  const Expr var = max(sum(reshape(squares, grouped)) / count - mean * mean, constant(x.graph(), 0));
  const auto per_channel = [&](const Expr& y) { return reshape(broadcast(y, grouped), sums.shape()); };
  const Expr scale = per_channel(rsqrt(var + n.eps)) * gamma;
  return x * scale + (beta - per_channel(mean) * scale);
}

Expr group_norm(const Scope& s, const Expr& x, const GroupNorm& n) {
  const Shape channels{x.shape()[-1]};
  return group_norm(x, n, s.small("weight", channels), s.small("bias", channels));
}

Expr layer_norm(const Expr& x, double eps, const Expr& gamma, const Expr& beta) {
  const Expr d = x - mean(x);
  return d * rsqrt(mean(d * d) + eps) * gamma + beta;
}

Expr layer_norm(const Scope& s, const Expr& x, double eps) {
  const Shape channels{x.shape()[-1]};
  return layer_norm(x, eps, s.small("weight", channels), s.small("bias", channels));
}

}  // namespace tenon::nn
