#include "tenon/nn/rotary.h"

#include <cmath>

#include "tenon/expr/ops.h"

namespace tenon::nn {

Rotary rotary(const Expr& positions, int64_t depth, double theta, DType act) {
  const Shape& s = positions.shape();
  TENON_CHECK(Usage, s.rank() == 2 && depth > 0 && depth % 2 == 0, "rotary")
      << "expected positions [B,T] and pairs, got " << s.str() << " and heads of " << depth;
  Graph& g = positions.graph();
  const int64_t half = depth / 2;
  const Expr frequency = exp(cast(iota(g, half), DType::F32) * (-2 * std::log(theta) / static_cast<double>(depth)));
  const Expr angle = reshape(cast(positions, DType::F32), {s[0], s[1], 1, 1, 1}) * frequency;  // [B,T,1,1,half]
  const Expr sign = reshape(cast(iota(g, 2), DType::F32) * 2.0 - 1.0, {2, 1});
  const Shape both{s[0], s[1], 1, 2, half}, whole{s[0], s[1], 1, depth};
  // Every layer reads them: in memory, once.
  const auto table = [&](const Expr& x) { return materialize(cast(reshape(broadcast(x, both), whole), act)); };
  return {table(cos(angle)), table(sin(angle) * sign)};
}

Expr rotate(const Expr& x, const Rotary& by) {
  const Shape& s = x.shape();
  const Expr halves = reshape(x, {s[0], s[1], s[2], 2, s[3] / 2});
  return x * by.cos + reshape(flip(halves, -2), s) * by.sin;
}

}  // namespace tenon::nn
