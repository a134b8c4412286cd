#include "tenon/nn/rotary.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "tenon/expr/ops.h"

namespace tenon::nn {

namespace {

// The part of each pair's speed that is left.
Expr scaled(const Expr& frequency, const Expr& index, const RotaryScaling& by) {
  if (by.by_pair == 0 && by.by_speed == 0) return by.factor == 1 ? frequency : frequency * (1 / by.factor);
  const Expr slope = by.by_speed != 0 ? frequency * by.by_speed : index * by.by_pair;
  const Expr kept = clamp(slope + by.offset, 0, 1);
  return frequency * (kept + (1.0 - kept) * (1 / by.factor));
}

// Angles f32 [B,T,depth / 2] of positions [B,T].
Expr angles(const Expr& positions, int64_t depth, double theta, const RotaryScaling& scaling) {
  const Shape& s = positions.shape();
  TENON_CHECK(Usage, s.rank() == 2 && depth > 0 && depth % 2 == 0, "rotary")
      << "expected positions [B,T] and pairs, got " << s.str() << " and heads of " << depth;
  const Expr index = cast(iota(positions.graph(), depth / 2), DType::F32);
  const Expr frequency = exp(index * (-2 * std::log(theta) / static_cast<double>(depth)));
  return reshape(cast(positions, DType::F32), {s[0], s[1], 1}) * scaled(frequency, index, scaling);
}

// -1 for the first element of a pair and 1 for the second, in the shape `shape`.
Expr signs(Graph& g, const Shape& shape) { return reshape(cast(iota(g, 2), DType::F32) * 2.0 - 1.0, shape); }

// Tables [B,T,1,D] that repeat each angle for both elements of a pair (`pairs`). Stored: every layer reads them.
Rotary tables(const Expr& angle, const Shape& pairs, const Expr& sign, DType act, double amplitude = 1) {
  const Shape whole{pairs[0], pairs[1], 1, pairs[3] * pairs[4]};
  const auto table = [&](const Expr& x) { return materialize(cast(reshape(broadcast(x, pairs), whole), act)); };
  if (amplitude != 1) return {table(cos(angle) * amplitude), table(sin(angle) * (sign * amplitude))};
  return {table(cos(angle)), table(sin(angle) * sign)};
}

}  // namespace

RotaryScaling RotaryScaling::by_turns(double factor, double slow, double fast, double length) {
  return {
      .factor = factor, .offset = -slow / (fast - slow), .by_speed = length / (2 * std::numbers::pi * (fast - slow))};
}

RotaryScaling RotaryScaling::between_pairs(double factor, double first, double last, double amplitude) {
  const double width = first == last ? 0.001 : last - first;
  return {.factor = factor, .amplitude = amplitude, .offset = 1 + first / width, .by_pair = -1 / width};
}

Rotary rotary(const Expr& positions, int64_t depth, double theta, const RotaryScaling& scaling, DType act) {
  const Expr angle = angles(positions, depth, theta, scaling);
  const Shape& s = angle.shape();
  return tables(reshape(angle, {s[0], s[1], 1, 1, s[2]}), {s[0], s[1], 1, 2, s[2]}, signs(positions.graph(), {2, 1}),
                act, scaling.amplitude);
}

Expr rotate(const Expr& x, const Rotary& by) {
  const Shape& s = x.shape();
  const Expr halves = reshape(x, {s[0], s[1], s[2], 2, s[3] / 2});
  return x * by.cos + reshape(flip(halves, -2), s) * by.sin;
}

Rotary rotary(std::span<const RotaryAxis> axes, double theta) {
  std::vector<Expr> parts;
  for (const RotaryAxis& a : axes) parts.push_back(angles(a.positions, a.depth, theta, {}));
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
