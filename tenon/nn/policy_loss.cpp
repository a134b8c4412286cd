#include "tenon/nn/policy_loss.h"

#include <cmath>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::nn {
namespace {

constexpr double kMaxDifference = 40;  // of log-probabilities: e^40 is far below f32's maximum
constexpr double kNearZero = 0.03;     // below it, the series of k3 is accurate to f32's last bit

// e^d - d - 1. Uses a series near 0, where its terms would cancel in f32.
Expr k3_of(const Expr& d) {
  const Expr series = d * d * 0.5 * (1.0 + d * (1.0 / 3) * (1.0 + d * 0.25 * (1.0 + d * 0.2)));
  return where(less(abs(d), constant(d.graph(), kNearZero)), series, exp(d) - d - 1.0);
}

}  // namespace

void check_policy(const PolicyOptions& o) {
  TENON_CHECK(Usage, o.clip_low >= 0 && o.clip_low < 1, "clip low") << o.clip_low << ": expected 0 or more, below 1";
  TENON_CHECK(Usage, o.clip_high >= 0 && std::isfinite(o.clip_high), "clip high")
      << o.clip_high << ": expected a number of at least 0";
  TENON_CHECK(Usage, o.delta == 0 || (o.delta > 1 && std::isfinite(o.delta)), "delta")
      << o.delta << ": expected 0 (none) or a number above 1";
  TENON_CHECK(Usage, o.beta >= 0 && std::isfinite(o.beta), "beta") << o.beta << ": expected a number of at least 0";
}

Expr policy_terms(const Expr& logp, const Expr& old, const Expr& reference, const Expr& advantage, const Expr& weight,
                  const PolicyOptions& o) {
  check_policy(o);
  TENON_CHECK(Usage, o.beta == 0 || reference, "policy loss") << "beta is " << o.beta << ", but there is no reference";
  const Expr zero = constant(logp.graph(), 0);
  // Remove tokens without weight here: after an exponential they could be infinite, and 0 times infinity is NaN.
  const auto difference = [&](const Expr& a, const Expr& b) {
    return clamp(where(weight, a - b, zero), -kMaxDifference, kMaxDifference);
  };
  const Expr ratio = exp(difference(logp, old));
  const Expr free = o.delta > 0 ? min(ratio, constant(logp.graph(), o.delta)) : ratio;
  const Expr clipped = clamp(ratio, 1 - o.clip_low, 1 + o.clip_high);
  Expr loss = -min(free * advantage, clipped * advantage);
  if (o.beta > 0) loss = loss + k3_of(difference(reference, logp)) * o.beta;
  return loss * weight;
}

Expr token_weights(const Expr& mask, PolicyLoss kind, double longest, const Expr& tokens) {
  const Shape& s = mask.shape();
  TENON_CHECK(Usage, s.rank() == 2 && s.numel() > 0, "policy loss") << "expected a mask [N, C], got " << s.str();
  TENON_CHECK(Usage, longest >= 1, "policy loss") << "longest completion " << longest << ": expected 1 or more";
  TENON_CHECK(Usage, kind != PolicyLoss::Dapo || tokens, "policy loss") << "dapo needs the number of tokens";
  const Expr one = constant(mask.graph(), 1);
  const auto rows = static_cast<double>(s[0]);
  switch (kind) {
    case PolicyLoss::DrGrpo:
      return mask * (1 / (rows * longest));
    case PolicyLoss::Grpo:
      return mask / (max(sum(mask), one) * rows);
    case PolicyLoss::Bnpo:
      return mask / max(sum(reshape(mask, {1, s.numel()})), one);
    case PolicyLoss::Dapo:
      break;
  }
  // Not `max`: the tokens of an update divided by its parts may be fewer than 1.
  return mask / where(less(constant(mask.graph(), 0), tokens), tokens, one);
}

}  // namespace tenon::nn
