// fma: a product and a sum in one rounding.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// a * b + c, rounded once. Where a * b and c nearly cancel, the rounding of a product by itself would be most of what
/// is left.
struct Fma : Pointwise<3> {
  static constexpr auto name = "fma";
  template <class V>
  HD static V eval(V a, V b, V c) {
    return hd::fma(a, b, c);
  }
  template <class E>
  static std::array<E, 3> vjp(E g, E a, E b, E) {
    return {g * b, g * a, g};
  }
};

}  // namespace tenon::nodes

NODE(Fma)

POINTWISE_FACTORY(Fma, fma)
