// Rectifiers; the gradient at 0 is that of the negative side.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"
#include "tenon/expr/nodes/compare.h"

namespace tenon::nodes {

/// max(x, 0)
struct Relu : Pointwise<1> {
  static constexpr auto name = "relu";
  template <class V>
  HD static V eval(V x) {
    return hd::select<V>(x < hd::splat<V>(0), hd::splat<V>(0), x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    return {where(less(-x, x), g, g * 0.0)};
  }
};

/// x, or slope * x below 0
struct LeakyRelu : Pointwise<1, 1> {
  static constexpr auto name = "leaky_relu";
  template <class V>
  HD static V eval(V x, hd::Scalar<V> slope) {
    return hd::select<V>(x < hd::splat<V>(0), x * hd::splat<V>(slope), x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x, double slope) {
    return {where(less(-x, x), g, g * slope)};
  }
};

}  // namespace tenon::nodes

NODE(Relu)
NODE(LeakyRelu)

POINTWISE_FACTORY(Relu, relu)
POINTWISE_FACTORY(LeakyRelu, leaky_relu)
