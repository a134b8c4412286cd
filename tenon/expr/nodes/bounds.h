// Absolute value, extremes and limits. At ties min and max send the gradient to the first operand.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"
#include "tenon/expr/nodes/compare.h"

namespace tenon::nodes {

/// |x|; gradient 0 at 0
struct Abs : Pointwise<1> {
  static constexpr auto name = "abs";
  template <class V>
  HD static V eval(V x) {
    return hd::abs(x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    return {where(less(x, -x), -g, where(equal(x, -x), g * 0.0, g))};
  }
};

/// the smaller operand; NaN if either is NaN
struct Min : Pointwise<2> {
  static constexpr auto name = "min";
  template <class V>
  HD static V eval(V a, V b) {
    return hd::select<V>(b < a, b, hd::select<V>(b != b, b, a));
  }
  template <class E>
  static std::array<E, 2> vjp(E g, E a, E b) {
    E take_b = less(b, a);
    return {where(take_b, g * 0.0, g), where(take_b, g, g * 0.0)};
  }
};

/// the larger operand; NaN if either is NaN
struct Max : Pointwise<2> {
  static constexpr auto name = "max";
  template <class V>
  HD static V eval(V a, V b) {
    return hd::select<V>(b > a, b, hd::select<V>(b != b, b, a));
  }
  template <class E>
  static std::array<E, 2> vjp(E g, E a, E b) {
    E take_b = less(a, b);
    return {where(take_b, g * 0.0, g), where(take_b, g, g * 0.0)};
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
  template <class E>
  static std::array<E, 1> vjp(E g, E x, double lo, double hi) {
    E inside = equal(x, clamp(x, lo, hi));
    return {where(inside, g, g * 0.0)};
  }
};

}  // namespace tenon::nodes

NODE(Abs)
NODE(Min)
NODE(Max)
NODE(Clamp)

POINTWISE_FACTORY(Abs, abs)
POINTWISE_FACTORY(Min, min)
POINTWISE_FACTORY(Max, max)
POINTWISE_FACTORY(Clamp, clamp)
