// What says where launches end, in which order they run and what gradients treat as given: values as they are.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// x itself, in its own type; the gradient is passed on.
template <int P = 0>
struct Pass : Pointwise<1, P> {
  HD static auto eval(auto x, auto...) { return x; }
  static DType dtype(std::span<const Expr> in, const Attrs&) { return in[0].dtype(); }
  static auto vjp(auto g, auto...) { return std::array{g}; }
};

/// x, stored in memory by the launch that computes it: no launch reads through it.
struct Materialize : Pass<> {
  static constexpr auto name = "materialize";
};

/// x, stored in memory. nums[0] is a stage: a plan computes everything that stands behind barriers of lower stages
/// first. Barriers of different stages are different nodes, so that what is computed a second time, behind a barrier,
/// is not taken for the first. Gradient: passed on.
struct Barrier : Pass<1> {
  static constexpr auto name = "barrier";
};

/// x, through which no gradient flows. Plans do not have it: its value is x's.
struct StopGradient : Pass<> {
  static constexpr auto name = "stop_gradient";
  static auto vjp(auto g, auto) { return std::array{decltype(g)()}; }
};

}  // namespace tenon::nodes

NODE(Materialize)
NODE(Barrier)
NODE(StopGradient, stop_gradient)

namespace tenon {

/// x itself where it lies in memory anyway.
inline Expr materialize(const Expr& x) { return x->family() == Family::Leaf ? x : make_node<nodes::Materialize>({x}); }

/// x for readers whose turn is `stage`, 0 or more (nodes::Barrier). What stands behind no barrier comes first.
inline Expr barrier(const Expr& x, int stage) {
  return make_node<nodes::Barrier>({x}, {.nums = {static_cast<double>(stage)}});
}

}  // namespace tenon
