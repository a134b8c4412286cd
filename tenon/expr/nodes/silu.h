// SiLU (swish).
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"
#include "tenon/expr/nodes/sigmoid.h"

namespace tenon::nodes {

/// x * sigmoid(x)
struct Silu : Pointwise<1> {
  static constexpr auto name = "silu";
  template <class V>
  HD static V eval(V x) {
    return x * hd::sigmoid(x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    E s = sigmoid(x);
    return {g * s * (1.0 + x * (1.0 - s))};
  }
};

}  // namespace tenon::nodes

NODE(Silu)

POINTWISE_FACTORY(Silu, silu)
