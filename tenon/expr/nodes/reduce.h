// Reductions over the last axis, or over all axes between the first and the last (per sample and channel, as group
// statistics need). The reduced axes stay, with extent 1. A launch can yield those with `of_moments` as statistics of
// what it stores.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/arithmetic.h"

namespace tenon::nodes {

/// Sum of the elements.
struct Sum : Reduce {
  static constexpr auto name = "sum";
  static constexpr double init = 0;
  HD static auto step(auto acc, auto x) { return acc + x; }
  HD static auto of_moments(auto n, auto mean, auto) { return n * mean; }
  static auto vjp(const auto& node, const auto& g) { return std::vector{broadcast(g, node->in[0].shape())}; }
};

/// Arithmetic mean.
struct Mean : Sum {
  static constexpr auto name = "mean";
  HD static auto finish(auto acc, auto n) { return acc / n; }
  HD static auto of_moments(auto, auto mean, auto) { return mean; }
  static auto vjp(const auto& node, const auto& g) { return Sum::vjp(node, g * (1.0 / count(*node))); }
};

/// Sum of squares.
struct SumSquares : Sum {
  static constexpr auto name = "sumsq";
  HD static auto step(auto acc, auto x) { return acc + x * x; }
  HD static auto combine(auto a, auto b) { return a + b; }
  HD static auto of_moments(auto n, auto mean, auto m2) { return m2 + n * mean * mean; }
  static auto vjp(const auto& node, const auto& g) { return std::vector{g * node->in[0] * 2.0}; }
};

/// Biased variance: mean squared deviation from the mean. It takes two passes.
struct Variance : Reduce {
  static constexpr auto name = "variance";
  HD static auto of_moments(auto n, auto, auto m2) { return m2 / n; }
  static Expr apart(const Expr& node);
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
};

/// Largest element; NaN if any is NaN. Ties share the gradient equally.
struct ReduceMax : Reduce {
  static constexpr auto name = "reduce_max";
  static constexpr double init = -INFINITY;
  HD static auto step(auto acc, auto x) { return hd::select(acc < x, x, hd::select(x != x, x, acc)); }
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
};

/// Largest absolute value; NaN if any is NaN. Ties share the gradient equally.
struct AbsMax : Reduce {
  static constexpr auto name = "absmax";
  static constexpr bool largest_magnitude = true;  ///< for targets with an instruction for step
  static constexpr double init = 0;
  template <class V>
  HD static V step(V acc, V x) {
    const V a = hd::abs(x);
    return hd::select<V>(acc < a, a, hd::select<V>(x != x, x, acc));
  }
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
};

}  // namespace tenon::nodes

NODE(Sum)
NODE(Mean)
NODE(SumSquares)
NODE(Variance)
NODE(ReduceMax)
NODE(AbsMax)

#ifndef TENON_DEVICE  // bodies only
namespace tenon {

/// A reduction of type T over the last axis or the inner axes.
template <class T>
Expr reduce(const Expr& x, ReduceOver over) {
  return make_node<T>({x}, {.ints = {static_cast<int64_t>(over)}});
}
inline Expr sum(const Expr& x, ReduceOver over = ReduceOver::Last) { return reduce<nodes::Sum>(x, over); }
inline Expr mean(const Expr& x, ReduceOver over = ReduceOver::Last) { return reduce<nodes::Mean>(x, over); }
inline Expr sumsq(const Expr& x, ReduceOver over = ReduceOver::Last) { return reduce<nodes::SumSquares>(x, over); }
inline Expr variance(const Expr& x, ReduceOver over = ReduceOver::Last) { return reduce<nodes::Variance>(x, over); }
inline Expr reduce_max(const Expr& x, ReduceOver over = ReduceOver::Last) { return reduce<nodes::ReduceMax>(x, over); }
inline Expr absmax(const Expr& x, ReduceOver over = ReduceOver::Last) { return reduce<nodes::AbsMax>(x, over); }

inline Expr nodes::Variance::apart(const Expr& node) {
  const ReduceOver over = static_cast<ReduceOver>(node->attrs.ints[0]);
  const Expr d = node->in[0] - mean(node->in[0], over);
  return mean(d * d, over);
}
inline std::vector<Expr> nodes::Variance::vjp(const Expr& node, const Expr& g) {
  const Expr& x = node->in[0];
  return {g * (2.0 / count(*node)) * (x - mean(x, static_cast<ReduceOver>(node->attrs.ints[0])))};
}

}  // namespace tenon
#endif
