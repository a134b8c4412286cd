// Sine and cosine, of radians.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"

namespace tenon::nodes {

/// sin(x)
struct Sin : Pointwise<1> {
  static constexpr auto name = "sin";
  template <class V>
  HD static V eval(V x) {
    return hd::sin(x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    return {g * cos(x)};
  }
};

/// cos(x)
struct Cos : Pointwise<1> {
  static constexpr auto name = "cos";
  template <class V>
  HD static V eval(V x) {
    return hd::cos(x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    return {-(g * sin(x))};
  }
};

}  // namespace tenon::nodes

NODE(Sin)
NODE(Cos)

POINTWISE_FACTORY(Sin, sin)
POINTWISE_FACTORY(Cos, cos)
