#include "tenon/nn/diffusion_loss.h"

#include "tenon/expr/ops.h"

namespace tenon::nn {

Expr noised(const Expr& x0, const Expr& noise, const NoiseShares& shares) {
  return x0 * shares.picture + noise * shares.noise;
}

Expr denoising_target(DenoisingTarget kind, const Expr& x0, const Expr& noise, const NoiseShares& shares) {
  switch (kind) {
    case DenoisingTarget::Noise:
      return noise;
    case DenoisingTarget::Velocity:
      return noise * shares.picture - x0 * shares.noise;
    case DenoisingTarget::Sample:
      return x0;
    case DenoisingTarget::Flow:
      break;
  }
  return noise - x0;
}

Expr denoising_loss(const Expr& prediction, const Expr& target, const Expr& weight) {
  const Shape& s = prediction.shape();
  TENON_CHECK(Usage, s == target.shape() && s.rank() >= 2 && weight.shape() == Shape{s[0]}, "denoising loss")
      << "prediction " << s.str() << ", target " << target.shape().str() << " and weight " << weight.shape().str()
      << " do not fit";
  const Expr error = prediction - target;
  // In two steps: no device can hold a large picture as one row.
  const Expr rows = reshape(mean(error * error), {s[0], s.numel() / (s[0] * s[-1])});
  const Expr each = reshape(mean(rows), {1, s[0]}) * reshape(weight, {1, s[0]});
  return reshape(mean(each), {});
}

}  // namespace tenon::nn
