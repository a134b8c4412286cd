// Nodes that pass values on unchanged: they set where launches end, in which order they run, and where gradients stop.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// x itself, in its own type; passes the gradient on.
template <int P = 0>
struct Pass : Pointwise<1, P> {
  HD static auto eval(auto x, auto...) { return x; }
  static DType dtype(std::span<const Expr> in, const Attrs&) { return in[0].dtype(); }
  static auto vjp(auto g, auto...) { return std::array{g}; }
};

/// x, stored in memory by the launch that computes it: no launch is fused across it.
struct Materialize : Pass<> {
  static constexpr auto name = "materialize";
};

/// x, stored in memory. nums[0] is a stage: a plan first computes everything behind barriers of lower stages. Barriers
/// of different stages are different nodes, so hash-consing does not merge a recomputation behind a barrier with the
/// original. Passes the gradient on.
struct Barrier : Pass<1> {
  static constexpr auto name = "barrier";
};

/// x, but no gradient flows through. Plans do not contain it: its value is x's.
struct StopGradient : Pass<> {
  static constexpr auto name = "stop_gradient";
  static auto vjp(auto g, auto) { return std::array{decltype(g)()}; }
};

}  // namespace tenon::nodes

NODE(Materialize)
NODE(Barrier)
NODE(StopGradient, stop_gradient)

namespace tenon {

/// x itself if it is a leaf, which is in memory anyway.
inline Expr materialize(const Expr& x) { return x->family() == Family::Leaf ? x : make_node<nodes::Materialize>({x}); }

/// x for readers of `stage`, 0 or more (nodes::Barrier). Whatever is behind no barrier comes first.
inline Expr barrier(const Expr& x, int stage) {
  return make_node<nodes::Barrier>({x}, {.nums = {static_cast<double>(stage)}});
}

}  // namespace tenon
