#include "tenon/nn/norm.h"

#include "tenon/expr/ops.h"

namespace tenon::nn {
namespace {

// Reduces each part of a concatenation of channels separately.
Expr reduce_parts(const Expr& x, Expr (*reduce_one)(const Expr&)) {
  if (!x.is<nodes::Concat>() || x->attrs.ints[0] != x.shape().rank() - 1) return reduce_one(x);
  std::vector<Expr> parts;
  for (const Expr& part : x->in) parts.push_back(reduce_parts(part, reduce_one));
  return concat(parts, -1);
}

}  // namespace

// Without axes between the first and the last, there is one value per channel.
Expr channel_means(const Expr& x) {
  return reduce_parts(x, [](const Expr& part) {
    return part.shape().rank() < 3 ? cast(part, DType::F32) : mean(part, ReduceOver::Inner);
  });
}

Expr channel_variances(const Expr& x) {
  return reduce_parts(x, [](const Expr& part) {
    return part.shape().rank() < 3 ? broadcast(constant(part.graph(), 0), part.shape())
                                   : variance(part, ReduceOver::Inner);
  });
}

Expr group_norm(const Expr& x, const GroupNorm& n, const Expr& gamma, const Expr& beta) {
  TENON_CHECK(Usage, x.shape().rank() >= 2, "group_norm") << "expected x [N,..,C], got " << x.shape().str();
  const int64_t samples = x.shape()[0], channels = x.shape()[-1];
  TENON_CHECK(Usage, n.groups > 0 && channels % n.groups == 0, "group_norm")
      << n.groups << " groups do not divide the " << channels << " channels of " << x.shape().str();
  const Shape grouped{samples, n.groups, channels / n.groups};
  Shape per_sample = x.shape();
  for (int a = 1; a < per_sample.rank() - 1; ++a) per_sample[a] = 1;
  const Expr means = reshape(channel_means(x), grouped), variances = reshape(channel_variances(x), grouped);
  // The mean of numbers far from 0 has a rounding error: the mean of their differences from it.
  const Expr about = mean(means), apart = means - about, off = mean(apart);
  const Expr rstd = rsqrt(mean(variances + apart * apart) - off * off + n.eps);
  const auto per_channel = [&](const Expr& y) { return reshape(broadcast(y, grouped), per_sample); };
  const Expr scale = per_channel(rstd) * gamma, shift = fma(per_channel(-(about + off)), scale, beta);
  return fma(x, scale, shift);
}

Expr group_norm(const Scope& s, const Expr& x, const GroupNorm& n) {
  const Shape channels{x.shape()[-1]};
  return group_norm(x, n, s.small("weight", channels), s.small("bias", channels));
}

Expr layer_norm(const Expr& x, double eps) {
  const Expr d = x - mean(x);
  return d * rsqrt(mean(d * d) + eps);
}

Expr layer_norm(const Expr& x, double eps, const Expr& gamma, const Expr& beta) {
  return layer_norm(x, eps) * gamma + beta;
}

Expr layer_norm(const Scope& s, const Expr& x, double eps) {
  const Shape channels{x.shape()[-1]};
  return layer_norm(x, eps, s.small("weight", channels), s.small("bias", channels));
}

Expr rms_norm(const Expr& x, double eps, const Expr& gamma, DType act) {
  const Expr n = x * rsqrt(mean(x * x) + eps);
  return (act == DType::F32 ? n : round(n, act)) * gamma;
}

Expr rms_norm(const Scope& s, const Expr& x, double eps) {
  return rms_norm(x, eps, s.small("weight", {x.shape()[-1]}), s.act());
}

}  // namespace tenon::nn
