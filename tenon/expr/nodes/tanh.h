// Hyperbolic tangent.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"

namespace tenon::nodes {

/// tanh(x)
struct Tanh : Pointwise<1> {
  static constexpr auto name = "tanh";
  template <class V>
  HD static V eval(V x) {
    return hd::tanh(x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    E t = tanh(x);
    return {g * (1.0 - t * t)};
  }
};

}  // namespace tenon::nodes

NODE(Tanh)

POINTWISE_FACTORY(Tanh, tanh)
