// Sine and cosine, in radians.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"

namespace tenon::nodes {

/// sin(x)
struct Sin : Pointwise<1> {
  static constexpr auto name = "sin";
  HD static auto eval(auto x) { return hd::sin(x); }
  static auto vjp(auto g, auto x) { return std::array{g * cos(x)}; }
};

/// cos(x)
struct Cos : Pointwise<1> {
  static constexpr auto name = "cos";
  HD static auto eval(auto x) { return hd::cos(x); }
  static auto vjp(auto g, auto x) { return std::array{-(g * sin(x))}; }
};

}  // namespace tenon::nodes

NODE(Sin, sin)
NODE(Cos, cos)
