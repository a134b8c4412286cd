// The remainder of a division.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"

namespace tenon::nodes {

/// a - trunc(a / b) b, exactly, as std::fmod: of a's sign, and NaN where b is 0 or a infinite. The quotient counts as
/// constant in the gradient.
struct Fmod : Pointwise<2> {
  static constexpr auto name = "fmod";
  template <class V>
  HD static V eval(V a, V b) {
    return hd::fmod(a, b);
  }
  template <class E>
  static std::array<E, 2> vjp(E g, E a, E b) {
    return {g, -(g * (a - fmod(a, b)) / b)};
  }
};

}  // namespace tenon::nodes

NODE(Fmod)

POINTWISE_FACTORY(Fmod, fmod)
