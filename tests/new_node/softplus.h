// softplus: a smooth rectifier.
#pragma once
#include "tenon/expr/nodes/activations.h"

namespace tenon::nodes {

/// log(1 + e^x)
struct Softplus : Pointwise<1> {
  static constexpr auto name = "softplus";
  template <class V>
  HD static V eval(V x) {  // e^x alone is infinite for large x
    return hd::max(x, hd::splat<V>(0)) + hd::log(hd::splat<V>(1) + hd::exp(-hd::abs(x)));
  }
  static auto vjp(auto g, auto x) { return std::array{g * sigmoid(x)}; }
};

}  // namespace tenon::nodes

NODE(Softplus, softplus)
