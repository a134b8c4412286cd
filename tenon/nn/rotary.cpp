#include "tenon/nn/rotary.h"

#include <cmath>
#include <vector>

#include "tenon/expr/ops.h"

namespace tenon::nn {

namespace {

// Angles f32 [B,T,depth / 2] of positions [B,T].
Expr angles(const Expr& positions, int64_t depth, double theta) {
  const Shape& s = positions.shape();
  TENON_CHECK(Usage, s.rank() == 2 && depth > 0 && depth % 2 == 0, "rotary")
      << "expected positions [B,T] and pairs, got " << s.str() << " and heads of " << depth;
  const Expr index = cast(iota(positions.graph(), depth / 2), DType::F32);
  const Expr frequency = exp(index * (-2 * std::log(theta) / static_cast<double>(depth)));
  return reshape(cast(positions, DType::F32), {s[0], s[1], 1}) * frequency;
}

// -1 for the first element of a pair and 1 for the second, in the shape `shape`.
Expr signs(Graph& g, const Shape& shape) { return reshape(cast(iota(g, 2), DType::F32) * 2.0 - 1.0, shape); }

// Tables [B,T,1,D] that repeat each angle for both elements of a pair (`pairs`). Stored: every layer reads them.
Rotary tables(const Expr& angle, const Shape& pairs, const Expr& sign, DType act) {
  const Shape whole{pairs[0], pairs[1], 1, pairs[3] * pairs[4]};
  const auto table = [&](const Expr& x) { return materialize(cast(reshape(broadcast(x, pairs), whole), act)); };
  return {table(cos(angle)), table(sin(angle) * sign)};
}

}  // namespace

Rotary rotary(const Expr& positions, int64_t depth, double theta, DType act) {
  const Expr angle = angles(positions, depth, theta);
  const Shape& s = angle.shape();
  return tables(reshape(angle, {s[0], s[1], 1, 1, s[2]}), {s[0], s[1], 1, 2, s[2]}, signs(positions.graph(), {2, 1}),
                act);
}

Expr rotate(const Expr& x, const Rotary& by) {
  const Shape& s = x.shape();
  const Expr halves = reshape(x, {s[0], s[1], s[2], 2, s[3] / 2});
  return x * by.cos + reshape(flip(halves, -2), s) * by.sin;
}

Rotary rotary(std::span<const RotaryAxis> axes, double theta) {
  std::vector<Expr> parts;
  for (const RotaryAxis& a : axes) parts.push_back(angles(a.positions, a.depth, theta));
  const Expr angle = concat(parts, -1);
  const Shape& s = angle.shape();
  return tables(reshape(angle, {s[0], s[1], 1, s[2], 1}), {s[0], s[1], 1, s[2], 2}, signs(angle.graph(), {2}),
                DType::F32);
}

Expr rotate_neighbours(const Expr& x, const Rotary& by) {
  const Shape& s = x.shape();
  const Expr pairs = reshape(x, {s[0], s[1], s[2], s[3] / 2, 2});
  return x * by.cos + reshape(flip(pairs, -1), s) * by.sin;
}

}  // namespace tenon::nn
