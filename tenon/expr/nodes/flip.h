// Flip: one axis from its other end. ints = axis.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

struct Flip : View {
  static constexpr auto name = "flip";
  static constexpr int kArity = 1;
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape, DType& dtype) {
    shape = in[0].shape();
    TENON_CHECK(Usage, attrs.ints.size() == 1 && attrs.ints[0] >= 0 && attrs.ints[0] < shape.rank(), "flip")
        << "needs an axis inside " << shape.str();
    dtype = in[0].dtype();
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    Index& i = c[static_cast<size_t>(n.attrs.ints[0])];
    i = a.reversed(i, n.shape[static_cast<int>(n.attrs.ints[0])]);
    a.read(0, c);
  }
  static bool invertible(const Node&) { return true; }
  static Expr inverse(const Node& n, const Expr& y);
  static std::vector<Expr> vjp(const Expr& node, const Expr& g) { return {inverse(*node, g)}; }
};

}  // namespace tenon::nodes

NODE(Flip)

namespace tenon {

/// x with the elements of `axis` (negative: from the last) in opposite order.
inline Expr flip(const Expr& x, int axis) {
  Attrs a;
  a.ints = {axis < 0 ? axis + x.shape().rank() : axis};
  return x.graph().make(node_type<nodes::Flip>(), std::array{x}, a);
}

inline Expr nodes::Flip::inverse(const Node& n, const Expr& y) { return flip(y, static_cast<int>(n.attrs.ints[0])); }

}  // namespace tenon
