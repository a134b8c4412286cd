// Linear interpolation.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"

namespace tenon::nodes {

/// a + t (b - a)
struct Lerp : Pointwise<3> {
  static constexpr auto name = "lerp";
  template <class V>
  HD static V eval(V a, V b, V t) {
    return a + t * (b - a);
  }
  template <class E>
  static std::array<E, 3> vjp(E g, E a, E b, E t) {
    return {g * (1.0 - t), g * t, g * (b - a)};
  }
};

}  // namespace tenon::nodes

NODE(Lerp)

POINTWISE_FACTORY(Lerp, lerp)
