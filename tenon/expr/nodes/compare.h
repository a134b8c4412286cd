// Comparisons (1 where true, else 0) and selection.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// The gradient 0 of what was not selected: not g times 0, which is NaN if g is infinite.
auto none(auto g) { return constant(g.graph(), 0); }

/// 1 where a < b, else 0
struct Less : Pointwise<2> {
  static constexpr auto name = "less";
  template <class V>
  HD static V eval(V a, V b) {
    return hd::select<V>(a < b, hd::splat<V>(1), hd::splat<V>(0));
  }
  static auto vjp(auto g, auto, auto) { return std::array{decltype(g)(), decltype(g)()}; }
};

/// 1 where a == b, else 0
struct Equal : Pointwise<2> {
  static constexpr auto name = "equal";
  template <class V>
  HD static V eval(V a, V b) {
    return hd::select<V>(a == b, hd::splat<V>(1), hd::splat<V>(0));
  }
  static auto vjp(auto g, auto, auto) { return std::array{decltype(g)(), decltype(g)()}; }
};

/// a where c is not 0, else b
struct Where : Pointwise<3> {
  static constexpr auto name = "where";
  HD static auto eval(auto c, auto a, auto b) { return hd::select(c != decltype(c){}, a, b); }
  static auto vjp(auto g, auto c, auto, auto) {
    return std::array{decltype(g)(), where(c, g, none(g)), where(c, none(g), g)};
  }
};

}  // namespace tenon::nodes

NODE(Less, less)
NODE(Equal, equal)
NODE(Where, where)
