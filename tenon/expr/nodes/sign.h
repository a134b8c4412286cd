// The sign of a number.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"

namespace tenon::nodes {

/// -1, 0 or 1; 0 at 0 and at -0; NaN at NaN; gradient 0
struct Sign : Pointwise<1> {
  static constexpr auto name = "sign";
  template <class V>
  HD static V eval(V x) {
    const V zero = hd::splat<V>(0);
    // x + 0: NaN, or 0 where neither comparison holds, whatever the sign of the zero.
    return hd::select<V>(x > zero, hd::splat<V>(1), hd::select<V>(x < zero, hd::splat<V>(-1), x + zero));
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E) {
    return {g * 0.0};
  }
};

}  // namespace tenon::nodes

NODE(Sign)

POINTWISE_FACTORY(Sign, sign)
