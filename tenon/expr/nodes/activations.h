// Activations and the functions they are made of: logistic, hyperbolic tangent, error function. The gradient of a
// rectifier at 0 is that of its negative side. GELU comes in its exact form and the two common approximations.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"
#include "tenon/expr/nodes/compare.h"
#include "tenon/expr/nodes/powers.h"

namespace tenon::nodes {

/// 1 / (1 + e^-x)
struct Sigmoid : Pointwise<1> {
  static constexpr auto name = "sigmoid";
  HD static auto eval(auto x) { return hd::sigmoid(x); }
  static auto vjp(auto g, auto x) {
    const auto s = sigmoid(x);
    return std::array{g * s * (1.0 - s)};
  }
};

/// tanh(x)
struct Tanh : Pointwise<1> {
  static constexpr auto name = "tanh";
  HD static auto eval(auto x) { return hd::tanh(x); }
  static auto vjp(auto g, auto x) {
    const auto t = tanh(x);
    return std::array{g * (1.0 - t * t)};
  }
};

/// x * sigmoid(x)
struct Silu : Pointwise<1> {
  static constexpr auto name = "silu";
  HD static auto eval(auto x) { return x * hd::sigmoid(x); }
  static auto vjp(auto g, auto x) {
    const auto s = sigmoid(x);
    return std::array{g * s * (1.0 + x * (1.0 - s))};
  }
};

/// x/2 (1 + erf(x/sqrt 2))
struct Gelu : Pointwise<1> {
  static constexpr auto name = "gelu";
  HD static auto eval(auto x) { return x * hd::normal_cdf(x); }
  static auto vjp(auto g, auto x) {
    const auto cdf = 0.5 * (1.0 + erf(x * 0.70710678118654752));
    const auto pdf = 0.39894228040143268 * exp(-0.5 * x * x);
    return std::array{g * (cdf + x * pdf)};
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
  static auto vjp(auto g, auto x) {
    const auto t = tanh(0.79788456080286536 * (x + 0.044715 * x * x * x));
    const auto du = 0.79788456080286536 * (1.0 + 0.134145 * x * x);
    return std::array{g * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * du)};
  }
};

/// x * sigmoid(1.702 x)
struct QuickGelu : Pointwise<1> {
  static constexpr auto name = "quick_gelu";
  template <class V>
  HD static V eval(V x) {
    return x * hd::sigmoid(x * hd::splat<V>(1.702));
  }
  static auto vjp(auto g, auto x) {
    const auto s = sigmoid(1.702 * x);
    return std::array{g * s * (1.0 + 1.702 * x * (1.0 - s))};
  }
};

/// error function
struct Erf : Pointwise<1> {
  static constexpr auto name = "erf";
  HD static auto eval(auto x) { return hd::erf(x); }
  static auto vjp(auto g, auto x) { return std::array{g * 1.1283791670955126 * exp(-(x * x))}; }
};

/// max(x, 0)
struct Relu : Pointwise<1> {
  static constexpr auto name = "relu";
  HD static auto eval(auto x) { return hd::max(decltype(x){}, x); }
  static auto vjp(auto g, auto x) { return std::array{where(less(-x, x), g, none(g))}; }
};

/// x, or slope * x below 0
struct LeakyRelu : Pointwise<1, 1> {
  static constexpr auto name = "leaky_relu";
  template <class V>
  HD static V eval(V x, hd::Scalar<V> slope) {
    return hd::select<V>(x < hd::splat<V>(0), x * hd::splat<V>(slope), x);
  }
  static auto vjp(auto g, auto x, double slope) { return std::array{where(less(-x, x), g, g * slope)}; }
};

}  // namespace tenon::nodes

NODE(Sigmoid, sigmoid)
NODE(Tanh, tanh)
NODE(Silu, silu)
NODE(Gelu, gelu)
NODE(GeluTanh, gelu_tanh)
NODE(QuickGelu, quick_gelu)
NODE(Erf, erf)
NODE(Relu, relu)
NODE(LeakyRelu, leaky_relu)
