// Zero padding. ints = low and high count of each axis in turn.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/slice.h"

namespace tenon::nodes {

struct Pad : View {
  static constexpr auto name = "pad";
  static constexpr int kArity = 1;
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape, DType& dtype) {
    shape = in[0].shape();
    TENON_CHECK(Usage, attrs.ints.size() == 2 * static_cast<size_t>(shape.rank()), "pad")
        << "needs a low and a high count for each axis of " << shape.str();
    for (int a = 0; a < shape.rank(); ++a) {
      const int64_t lo = attrs.ints[2 * static_cast<size_t>(a)], hi = attrs.ints[2 * static_cast<size_t>(a) + 1];
      TENON_CHECK(Usage, lo >= 0 && hi >= 0, "pad") << "negative count on axis " << a << " of " << shape.str();
      shape[a] += lo + hi;
    }
    dtype = in[0].dtype();
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    const Shape& from = n.in[0].shape();
    for (int axis = 0; axis < from.rank(); ++axis) {
      Index& i = c[static_cast<size_t>(axis)];
      if (n.shape[axis] != from[axis]) i = a.inside(i, n.attrs.ints[2 * static_cast<size_t>(axis)], from[axis]);
    }
    a.read(0, c);
  }
  static std::vector<Expr> vjp(const Expr& node, const Expr& g) {
    Expr dx = g;
    for (int a = 0; a < g.shape().rank(); ++a) {
      const int64_t lo = node->attrs.ints[2 * static_cast<size_t>(a)];
      dx = slice(dx, a, lo, lo + node->in[0].shape()[a]);
    }
    return {dx};
  }
};

}  // namespace tenon::nodes

NODE(Pad)

namespace tenon {

/// x with zeros around it: low and high count of each axis in turn. x itself if all counts are 0.
inline Expr pad(const Expr& x, std::vector<int64_t> counts) {
  if (std::all_of(counts.begin(), counts.end(), [](int64_t n) { return n == 0; })) return x;
  Attrs a;
  a.ints = std::move(counts);
  return x.graph().make(node_type<nodes::Pad>(), std::array{x}, a);
}

inline std::vector<Expr> nodes::Slice::vjp(const Expr& node, const Expr& g) {
  const Shape& from = node->in[0].shape();
  std::vector<int64_t> counts(2 * static_cast<size_t>(from.rank()), 0);
  const size_t axis = static_cast<size_t>(node->attrs.ints[0]);
  counts[2 * axis] = node->attrs.ints[1];
  counts[2 * axis + 1] = from[static_cast<int>(axis)] - node->attrs.ints[2];
  return {pad(g, std::move(counts))};
}

}  // namespace tenon
