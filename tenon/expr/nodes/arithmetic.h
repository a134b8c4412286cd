// The four operations and negation; the operators of Expr stand for them.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// a + b
struct Add : Pointwise<2> {
  static constexpr auto name = "add";
  template <class V>
  HD static V eval(V a, V b) {
    return a + b;
  }
  template <class E>
  static std::array<E, 2> vjp(E g, E, E) {
    return {g, g};
  }
};

/// a - b
struct Sub : Pointwise<2> {
  static constexpr auto name = "sub";
  template <class V>
  HD static V eval(V a, V b) {
    return a - b;
  }
  template <class E>
  static std::array<E, 2> vjp(E g, E, E) {
    return {g, -g};
  }
};

/// a * b
struct Mul : Pointwise<2> {
  static constexpr auto name = "mul";
  template <class V>
  HD static V eval(V a, V b) {
    return a * b;
  }
  template <class E>
  static std::array<E, 2> vjp(E g, E a, E b) {
    return {g * b, g * a};
  }
};

/// a / b
struct Div : Pointwise<2> {
  static constexpr auto name = "div";
  template <class V>
  HD static V eval(V a, V b) {
    return a / b;
  }
  template <class E>
  static std::array<E, 2> vjp(E g, E a, E b) {
    return {g / b, -(g / b * (a / b))};
  }
};

/// -x
struct Neg : Pointwise<1> {
  static constexpr auto name = "neg";
  template <class V>
  HD static V eval(V x) {
    return -x;
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E) {
    return {-g};
  }
};

}  // namespace tenon::nodes

NODE(Add)
NODE(Sub)
NODE(Mul)
NODE(Div)
NODE(Neg)

POINTWISE_FACTORY(Add, add)
POINTWISE_FACTORY(Sub, sub)
POINTWISE_FACTORY(Mul, mul)
POINTWISE_FACTORY(Div, div)
POINTWISE_FACTORY(Neg, neg)

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
