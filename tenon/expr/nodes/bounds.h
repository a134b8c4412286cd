// Absolute value, minimum, maximum and clamping. At ties, min and max send the gradient to the first operand.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"
#include "tenon/expr/nodes/compare.h"

namespace tenon::nodes {

/// |x|; gradient 0 at 0
struct Abs : Pointwise<1> {
  static constexpr auto name = "abs";
  HD static auto eval(auto x) { return hd::abs(x); }
  static auto vjp(auto g, auto x) { return std::array{where(less(x, -x), -g, where(equal(x, -x), none(g), g))}; }
};

/// the smaller operand; NaN if either is NaN
struct Min : Pointwise<2> {
  static constexpr auto name = "min";
  HD static auto eval(auto a, auto b) { return hd::select(b < a, b, hd::select(b != b, b, a)); }
  static auto vjp(auto g, auto a, auto b) {
    const auto take_b = less(b, a);
    return std::array{where(take_b, none(g), g), where(take_b, g, none(g))};
  }
};

/// the larger operand; NaN if either is NaN
struct Max : Pointwise<2> {
  static constexpr auto name = "max";
  HD static auto eval(auto a, auto b) { return hd::select(b > a, b, hd::select(b != b, b, a)); }
  static auto vjp(auto g, auto a, auto b) {
    const auto take_b = less(a, b);
    return std::array{where(take_b, none(g), g), where(take_b, g, none(g))};
  }
};

/// x limited to [lo, hi]; NaN stays NaN; the bounds pass the gradient
struct Clamp : Pointwise<1, 2> {
  static constexpr auto name = "clamp";
  template <class V>
  HD static V eval(V x, hd::Scalar<V> lo, hd::Scalar<V> hi) {
    const V l = hd::splat<V>(lo), h = hd::splat<V>(hi);
    return hd::select<V>(x < l, l, hd::select<V>(x > h, h, x));
  }
  static auto vjp(auto g, auto x, double lo, double hi) {
    const auto inside = equal(x, clamp(x, lo, hi));
    return std::array{where(inside, g, none(g))};
  }
};

}  // namespace tenon::nodes

NODE(Abs, abs)
NODE(Min, min)
NODE(Max, max)
NODE(Clamp, clamp)
