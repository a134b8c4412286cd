// Slice: elements begin <= i < end of one axis. ints = axis, begin, end.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

struct Slice : View {
  static constexpr auto name = "slice";
  static constexpr int kArity = 1;
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape, DType& dtype) {
    shape = in[0].shape();
    TENON_CHECK(Usage, attrs.ints.size() == 3 && attrs.ints[0] >= 0 && attrs.ints[0] < shape.rank(), "slice")
        << "needs axis, begin and end, with the axis inside " << shape.str();
    const int axis = static_cast<int>(attrs.ints[0]);
    TENON_CHECK(Usage, 0 <= attrs.ints[1] && attrs.ints[1] <= attrs.ints[2] && attrs.ints[2] <= shape[axis], "slice")
        << "range " << attrs.ints[1] << ".." << attrs.ints[2] << " is outside axis " << axis << " of " << shape.str();
    shape[axis] = attrs.ints[2] - attrs.ints[1];
    dtype = in[0].dtype();
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    Index& i = c[static_cast<size_t>(n.attrs.ints[0])];
    i = a.plus(i, n.attrs.ints[1]);
    a.read(0, c);
  }
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
};

}  // namespace tenon::nodes

NODE(Slice)

namespace tenon {

/// Elements begin <= i < end of `axis` (negative: from the last). x itself for the whole axis.
inline Expr slice(const Expr& x, int axis, int64_t begin, int64_t end) {
  if (axis < 0) axis += x.shape().rank();
  if (axis >= 0 && axis < x.shape().rank() && begin == 0 && end == x.shape()[axis]) return x;
  Attrs a;
  a.ints = {axis, begin, end};
  return x.graph().make(node_type<nodes::Slice>(), std::array{x}, a);
}

}  // namespace tenon
