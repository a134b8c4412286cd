// The four operations and negation, which the operators of Expr build, and combinations of them.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// a + b
struct Add : Pointwise<2> {
  static constexpr auto name = "add";
  HD static auto eval(auto a, auto b) { return a + b; }
  static auto vjp(auto g, auto, auto) { return std::array{g, g}; }
};

/// a - b
struct Sub : Pointwise<2> {
  static constexpr auto name = "sub";
  HD static auto eval(auto a, auto b) { return a - b; }
  static auto vjp(auto g, auto, auto) { return std::array{g, -g}; }
};

/// a * b
struct Mul : Pointwise<2> {
  static constexpr auto name = "mul";
  HD static auto eval(auto a, auto b) { return a * b; }
  static auto vjp(auto g, auto a, auto b) { return std::array{g * b, g * a}; }
};

/// a / b
struct Div : Pointwise<2> {
  static constexpr auto name = "div";
  HD static auto eval(auto a, auto b) { return a / b; }
  static auto vjp(auto g, auto a, auto b) { return std::array{g / b, -(g / b * (a / b))}; }
};

/// -x
struct Neg : Pointwise<1> {
  static constexpr auto name = "neg";
  HD static auto eval(auto x) { return -x; }
  static auto vjp(auto g, auto) { return std::array{-g}; }
};

/// a * b + c, rounded once: where a * b and c nearly cancel, the rounding error of the product would dominate what is
/// left.
struct Fma : Pointwise<3> {
  static constexpr auto name = "fma";
  HD static auto eval(auto a, auto b, auto c) { return hd::fma(a, b, c); }
  static auto vjp(auto g, auto a, auto b, auto) { return std::array{g * b, g * a, g}; }
};

/// a + t (b - a)
struct Lerp : Pointwise<3> {
  static constexpr auto name = "lerp";
  HD static auto eval(auto a, auto b, auto t) { return a + t * (b - a); }
  static auto vjp(auto g, auto a, auto b, auto t) { return std::array{g * (1.0 - t), g * t, g * (b - a)}; }
};

/// a - trunc(a / b) b, exactly, as std::fmod: has a's sign; NaN where b is 0 or a is infinite. The gradient treats the
/// quotient as constant.
struct Fmod : Pointwise<2> {
  static constexpr auto name = "fmod";
  HD static auto eval(auto a, auto b) { return hd::fmod(a, b); }
  static auto vjp(auto g, auto a, auto b) { return std::array{g, -(g * (a - fmod(a, b)) / b)}; }
};

}  // namespace tenon::nodes

NODE(Add, add)
NODE(Sub, sub)
NODE(Mul, mul)
NODE(Div, div)
NODE(Neg, neg)
NODE(Fma, fma)
NODE(Lerp, lerp)
NODE(Fmod, fmod)

#ifndef TENON_DEVICE  // bodies only
namespace tenon {

inline Expr operator+(const Expr& a, const Expr& b) { return add(a, b); }
inline Expr operator-(const Expr& a, const Expr& b) { return sub(a, b); }
inline Expr operator*(const Expr& a, const Expr& b) { return mul(a, b); }
inline Expr operator/(const Expr& a, const Expr& b) { return div(a, b); }
inline Expr operator-(const Expr& x) { return neg(x); }
inline Expr operator+(const Expr& a, double b) { return a + constant(a.graph(), b); }
inline Expr operator-(const Expr& a, double b) { return a - constant(a.graph(), b); }
inline Expr operator*(const Expr& a, double b) { return a * constant(a.graph(), b); }
inline Expr operator/(const Expr& a, double b) { return a / constant(a.graph(), b); }
inline Expr operator+(double a, const Expr& b) { return constant(b.graph(), a) + b; }
inline Expr operator-(double a, const Expr& b) { return constant(b.graph(), a) - b; }
inline Expr operator*(double a, const Expr& b) { return constant(b.graph(), a) * b; }
inline Expr operator/(double a, const Expr& b) { return constant(b.graph(), a) / b; }

}  // namespace tenon
#endif
