// Floor, ceiling and sign: step functions, with gradient 0.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// largest integer not above x
struct Floor : Pointwise<1> {
  static constexpr auto name = "floor";
  HD static auto eval(auto x) { return hd::floor(x); }
  static auto vjp(auto g, auto) { return std::array{decltype(g)()}; }
};

/// smallest integer not below x
struct Ceil : Pointwise<1> {
  static constexpr auto name = "ceil";
  HD static auto eval(auto x) { return hd::ceil(x); }
  static auto vjp(auto g, auto) { return std::array{decltype(g)()}; }
};

/// -1, 0 or 1; 0 at 0 and at -0; NaN at NaN; gradient 0
struct Sign : Pointwise<1> {
  static constexpr auto name = "sign";
  template <class V>
  HD static V eval(V x) {
    const V zero = hd::splat<V>(0);
    // x + 0 is NaN for NaN, and +0 for either zero.
    return hd::select<V>(x > zero, hd::splat<V>(1), hd::select<V>(x < zero, hd::splat<V>(-1), x + zero));
  }
  static auto vjp(auto g, auto) { return std::array{decltype(g)()}; }
};

}  // namespace tenon::nodes

NODE(Floor, floor)
NODE(Ceil, ceil)
NODE(Sign, sign)
