// Powers and roots.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"
#include "tenon/expr/nodes/compare.h"
#include "tenon/expr/nodes/exponential.h"

namespace tenon::nodes {

/// a to the power b, as std::pow; the gradient is 0 for a where b is 0, and for b where a is 0
struct Pow : Pointwise<2> {
  static constexpr auto name = "pow";
  template <class V>
  HD static V eval(V a, V b) {
    return hd::pow(a, b);
  }
  template <class E>
  static std::array<E, 2> vjp(E g, E a, E b) {
    return {where(equal(b, -b), g * 0.0, g * b * pow(a, b - 1.0)),
            where(equal(a, -a), g * 0.0, g * pow(a, b) * log(a))};
  }
};

/// square root
struct Sqrt : Pointwise<1> {
  static constexpr auto name = "sqrt";
  template <class V>
  HD static V eval(V x) {
    return hd::sqrt(x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    return {g * 0.5 * rsqrt(x)};
  }
};

/// 1 / sqrt(x)
struct Rsqrt : Pointwise<1> {
  static constexpr auto name = "rsqrt";
  template <class V>
  HD static V eval(V x) {
    return hd::rsqrt(x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    return {g * -0.5 * rsqrt(x) / x};
  }
};

}  // namespace tenon::nodes

NODE(Pow)
NODE(Sqrt)
NODE(Rsqrt)

POINTWISE_FACTORY(Pow, pow)
POINTWISE_FACTORY(Sqrt, sqrt)
POINTWISE_FACTORY(Rsqrt, rsqrt)
