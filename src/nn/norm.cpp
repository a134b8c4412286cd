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

namespace {

// Images of fewer pixels get their variance in two passes: a group of a few elements may vary far less than its mean.
constexpr int64_t kTwoPassPixels = 16;

struct GroupMoments {
  Expr mean, variance;  // [samples, groups, 1]
  bool two_pass = false;
};

GroupMoments group_moments(const Expr& x, const Shape& grouped) {
  const int64_t samples = grouped[0], groups = grouped[1], width = grouped[2];
  const int64_t pixels = x.shape().numel() / (samples * groups * width);
  if (pixels < kTwoPassPixels) {
    const Expr apart = permute(reshape(x, {samples, pixels, groups, width}), {0, 2, 1, 3});
    const Expr rows = reshape(apart, {samples, groups, pixels * width});
    const Expr mu = mean(rows), d = rows - mu;
    return {mu, mean(d * d), true};
  }
  const double count = static_cast<double>(pixels * width);
  const Expr mu = sum(reshape(channel_sums(x), grouped)) / count;
  const Expr square = sum(reshape(channel_square_sums(x), grouped)) / count;
  return {mu, max(square - mu * mu, constant(x.graph(), 0)), false};
}

}  // namespace

Expr group_norm(const Expr& x, const GroupNorm& n, const Expr& gamma, const Expr& beta) {
  const int64_t samples = x.shape()[0], channels = x.shape()[-1];
  TENON_CHECK(Usage, n.groups > 0 && channels % n.groups == 0, "group_norm")
      << n.groups << " groups do not divide the " << channels << " channels of " << x.shape().str();
  const Shape grouped{samples, n.groups, channels / n.groups};
  Shape per_sample = x.shape();
  for (int a = 1; a < per_sample.rank() - 1; ++a) per_sample[a] = 1;
  const GroupMoments m = group_moments(x, grouped);
  const auto per_channel = [&](const Expr& y) { return reshape(broadcast(y, grouped), per_sample); };
  const Expr scale = per_channel(rsqrt(m.variance + n.eps)) * gamma;
  if (m.two_pass) return (x - per_channel(m.mean)) * scale + beta;
  return x * scale + (beta - per_channel(m.mean) * scale);
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
