// A place in the order of a program: what is computed of a barrier's value waits for its turn, and is a node of its
// own.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// x, stored in memory. nums[0] is a stage: a plan computes everything that stands behind barriers of lower stages
/// first. Barriers of different stages are different nodes, so that what is computed a second time, behind a barrier,
/// is not taken for the first. Gradient: passed on.
struct Barrier : Pointwise<1, 1> {
  static constexpr auto name = "barrier";
  template <class V>
  HD static V eval(V x, hd::Scalar<V>) {
    return x;
  }
  static void infer(std::span<const Expr> in, const Attrs&, Shape& shape, DType& dtype) {
    shape = in[0].shape();
    dtype = in[0].dtype();
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E, double) {
    return {g};
  }
};

}  // namespace tenon::nodes

NODE(Barrier)

namespace tenon {

/// x for readers whose turn is `stage`, 0 or more (nodes::Barrier). What stands behind no barrier comes first.
inline Expr barrier(const Expr& x, int stage) {
  Attrs a;
  a.nums = {static_cast<double>(stage)};
  return x.graph().make(node_type<nodes::Barrier>(), std::array{x}, a);
}

}  // namespace tenon
