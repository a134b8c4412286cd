// Exponential and natural logarithm.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"

namespace tenon::nodes {

/// e^x
struct Exp : Pointwise<1> {
  static constexpr auto name = "exp";
  template <class V>
  HD static V eval(V x) {
    return hd::exp(x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    return {g * exp(x)};
  }
};

/// natural logarithm
struct Log : Pointwise<1> {
  static constexpr auto name = "log";
  template <class V>
  HD static V eval(V x) {
    return hd::log(x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    return {g / x};
  }
};

}  // namespace tenon::nodes

NODE(Exp)
NODE(Log)

POINTWISE_FACTORY(Exp, exp)
POINTWISE_FACTORY(Log, log)
