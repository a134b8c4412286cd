// Rounding to whole numbers; the gradient is 0.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"

namespace tenon::nodes {

/// largest whole number not above x
struct Floor : Pointwise<1> {
  static constexpr auto name = "floor";
  template <class V>
  HD static V eval(V x) {
    return hd::floor(x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E) {
    return {g * 0.0};
  }
};

/// smallest whole number not below x
struct Ceil : Pointwise<1> {
  static constexpr auto name = "ceil";
  template <class V>
  HD static V eval(V x) {
    return hd::ceil(x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E) {
    return {g * 0.0};
  }
};

}  // namespace tenon::nodes

NODE(Floor)
NODE(Ceil)

POINTWISE_FACTORY(Floor, floor)
POINTWISE_FACTORY(Ceil, ceil)
