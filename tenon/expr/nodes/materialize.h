// A boundary between launches, where the author of a model wants one.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// x, stored in memory by the launch that computes it: no launch reads through it. Gradient: passed on.
struct Materialize : Pointwise<1> {
  static constexpr auto name = "materialize";
  template <class V>
  HD static V eval(V x) {
    return x;
  }
  static void infer(std::span<const Expr> in, const Attrs&, Shape& shape, DType& dtype) {
    shape = in[0].shape();
    dtype = in[0].dtype();
  }
  template <class E>
  static std::array<E, 1> vjp(E g, E) {
    return {g};
  }
};

}  // namespace tenon::nodes

NODE(Materialize)

namespace tenon {

/// x itself where it lies in memory anyway.
inline Expr materialize(const Expr& x) {
  return x->family() == Family::Leaf ? x : x.graph().make(node_type<nodes::Materialize>(), std::array{x}, {});
}

}  // namespace tenon
