// Powers, roots, the exponential function and the natural logarithm.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"
#include "tenon/expr/nodes/compare.h"

namespace tenon::nodes {

/// a to the power b, as std::pow; the gradient of a is 0 where b is 0, that of b where a is 0
struct Pow : Pointwise<2> {
  static constexpr auto name = "pow";
  HD static auto eval(auto a, auto b) { return hd::pow(a, b); }
  static auto vjp(auto g, auto a, auto b) {
    return std::array{where(equal(b, -b), none(g), g * b * pow(a, b - 1.0)),
                      where(equal(a, -a), none(g), g * pow(a, b) * log(a))};
  }
};

/// square root
struct Sqrt : Pointwise<1> {
  static constexpr auto name = "sqrt";
  HD static auto eval(auto x) { return hd::sqrt(x); }
  static auto vjp(auto g, auto x) { return std::array{g * 0.5 * rsqrt(x)}; }
};

/// 1 / sqrt(x)
struct Rsqrt : Pointwise<1> {
  static constexpr auto name = "rsqrt";
  HD static auto eval(auto x) { return hd::rsqrt(x); }
  static auto vjp(auto g, auto x) { return std::array{g * -0.5 * rsqrt(x) / x}; }
};

/// e^x
struct Exp : Pointwise<1> {
  static constexpr auto name = "exp";
  HD static auto eval(auto x) { return hd::exp(x); }
  static auto vjp(auto g, auto x) { return std::array{g * exp(x)}; }
};

/// natural logarithm
struct Log : Pointwise<1> {
  static constexpr auto name = "log";
  HD static auto eval(auto x) { return hd::log(x); }
  static auto vjp(auto g, auto x) { return std::array{g / x}; }
};

}  // namespace tenon::nodes

NODE(Pow, pow)
NODE(Sqrt, sqrt)
NODE(Rsqrt, rsqrt)
NODE(Exp, exp)
NODE(Log, log)
