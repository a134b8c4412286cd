// Gaussian error linear unit, exactly and in the two approximations in use.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"
#include "tenon/expr/nodes/exponential.h"
#include "tenon/expr/nodes/sigmoid.h"
#include "tenon/expr/nodes/tanh.h"

namespace tenon::nodes {

/// x/2 (1 + erf(x/sqrt 2))
struct Gelu : Pointwise<1> {
  static constexpr auto name = "gelu";
  template <class V>
  HD static V eval(V x) {
    return x * hd::normal_cdf(x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    E cdf = 0.5 * (1.0 + erf(x * 0.70710678118654752));
    E pdf = 0.39894228040143268 * exp(-0.5 * x * x);
    return {g * (cdf + x * pdf)};
  }
};

/// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
struct GeluTanh : Pointwise<1> {
  static constexpr auto name = "gelu_tanh";
  template <class V>
  HD static V eval(V x) {
    // (1 + tanh u) / 2 = sigmoid(2 u)
    const V u = hd::splat<V>(0.79788456080286536) * (x + hd::splat<V>(0.044715) * x * x * x);
    return x * hd::sigmoid(u + u);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    E t = tanh(0.79788456080286536 * (x + 0.044715 * x * x * x));
    E du = 0.79788456080286536 * (1.0 + 0.134145 * x * x);
    return {g * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * du)};
  }
};

/// x * sigmoid(1.702 x)
struct QuickGelu : Pointwise<1> {
  static constexpr auto name = "quick_gelu";
  template <class V>
  HD static V eval(V x) {
    return x * hd::sigmoid(x * hd::splat<V>(1.702));
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    E s = sigmoid(1.702 * x);
    return {g * s * (1.0 + 1.702 * x * (1.0 - s))};
  }
};

/// error function
struct Erf : Pointwise<1> {
  static constexpr auto name = "erf";
  template <class V>
  HD static V eval(V x) {
    return hd::erf(x);
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E x) {
    return {g * 1.1283791670955126 * exp(-(x * x))};
  }
};

}  // namespace tenon::nodes

NODE(Gelu)
NODE(GeluTanh)
NODE(QuickGelu)
NODE(Erf)

POINTWISE_FACTORY(Gelu, gelu)
POINTWISE_FACTORY(GeluTanh, gelu_tanh)
POINTWISE_FACTORY(QuickGelu, quick_gelu)
POINTWISE_FACTORY(Erf, erf)
