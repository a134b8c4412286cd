// What gradients treat as given.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// x, through which no gradient flows. Plans do not have it: its value is x's.
struct StopGradient : Pointwise<1> {
  static constexpr auto name = "stop_gradient";
  template <class V>
  HD static V eval(V x) {
    return x;
  }
  static void infer(std::span<const Expr> in, const Attrs&, Shape& shape, DType& dtype) {
    shape = in[0].shape();
    dtype = in[0].dtype();
  }
  template <class E>
  static std::array<E, 1> vjp(E, E) {
    return {};
  }
};

}  // namespace tenon::nodes

NODE(StopGradient)

POINTWISE_FACTORY(StopGradient, stop_gradient)
