// Logistic function.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"

namespace tenon::nodes {

/// 1 / (1 + e^-x)
struct Sigmoid : Pointwise<1> {
  static constexpr auto name = "sigmoid";
  template <class V>
  HD static V eval(V x) {
    return hd::sigmoid(x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    E s = sigmoid(x);
    return {g * s * (1.0 - s)};
  }
};

}  // namespace tenon::nodes

NODE(Sigmoid)

POINTWISE_FACTORY(Sigmoid, sigmoid)
