// Part of an axis, and zero padding; each is the other's gradient.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// Elements begin <= i < end of one axis. ints = axis, begin, end.
struct Slice : View {
  static constexpr auto name = "slice";
  static void infer(std::span<const Expr>, const Attrs& attrs, Shape& shape) {
    TENON_CHECK(Usage, attrs.ints.size() == 3 && attrs.ints[0] >= 0 && attrs.ints[0] < shape.rank(), "slice")
        << "needs axis, begin and end, with the axis inside " << shape.str();
    const int axis = static_cast<int>(attrs.ints[0]);
    TENON_CHECK(Usage, 0 <= attrs.ints[1] && attrs.ints[1] <= attrs.ints[2] && attrs.ints[2] <= shape[axis], "slice")
        << "range " << attrs.ints[1] << ".." << attrs.ints[2] << " is outside axis " << axis << " of " << shape.str();
    shape[axis] = attrs.ints[2] - attrs.ints[1];
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    Index& i = c[static_cast<size_t>(n.attrs.ints[0])];
    i = a.plus(i, n.attrs.ints[1]);
    a.read(0, c);
  }
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
};

/// x padded with zeros. ints = low and high count of each axis in turn.
struct Pad : View {
  static constexpr auto name = "pad";
  static void infer(std::span<const Expr>, const Attrs& attrs, Shape& shape) {
    TENON_CHECK(Usage, attrs.ints.size() == 2 * static_cast<size_t>(shape.rank()), "pad")
        << "needs a low and a high count for each axis of " << shape.str();
    for (int a = 0; a < shape.rank(); ++a) {
      const int64_t lo = attrs.ints[2 * static_cast<size_t>(a)], hi = attrs.ints[2 * static_cast<size_t>(a) + 1];
      TENON_CHECK(Usage, lo >= 0 && hi >= 0, "pad") << "negative count on axis " << a << " of " << shape.str();
      shape[a] += lo + hi;
    }
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    const Shape& from = n.in[0].shape();
    for (int axis = 0; axis < from.rank(); ++axis) {
      Index& i = c[static_cast<size_t>(axis)];
      if (n.shape[axis] != from[axis]) i = a.inside(i, n.attrs.ints[2 * static_cast<size_t>(axis)], from[axis]);
    }
    a.read(0, c);
  }
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
};

}  // namespace tenon::nodes

NODE(Slice)
NODE(Pad)

namespace tenon {

/// Elements begin <= i < end of `axis` (negative: from the last). x itself for the whole axis.
inline Expr slice(const Expr& x, int axis, int64_t begin, int64_t end) {
  axis = x.shape().axis(axis, "slice");
  if (begin == 0 && end == x.shape()[axis]) return x;
  return make_node<nodes::Slice>({x}, {.ints = {axis, begin, end}});
}

/// x padded with zeros: low and high count of each axis in turn. x itself if all counts are 0.
inline Expr pad(const Expr& x, std::vector<int64_t> counts) {
  if (std::all_of(counts.begin(), counts.end(), [](int64_t n) { return n == 0; })) return x;
  return make_node<nodes::Pad>({x}, {.ints = std::move(counts)});
}

/// x padded with `low` zeros before and `high` after, along `axis` (negative: from the last).
inline Expr pad(const Expr& x, int axis, int64_t low, int64_t high) {
  axis = x.shape().axis(axis, "pad");
  std::vector<int64_t> counts(2 * static_cast<size_t>(x.shape().rank()), 0);
  counts[2 * static_cast<size_t>(axis)] = low;
  counts[2 * static_cast<size_t>(axis) + 1] = high;
  return pad(x, std::move(counts));
}

inline std::vector<Expr> nodes::Slice::vjp(const Expr& node, const Expr& g) {
  const auto& ints = node->attrs.ints;
  const int axis = static_cast<int>(ints[0]);
  return {pad(g, axis, ints[1], node->in[0].shape()[axis] - ints[2])};
}
inline std::vector<Expr> nodes::Pad::vjp(const Expr& node, const Expr& g) {
  Expr dx = g;
  for (int a = 0; a < g.shape().rank(); ++a) {
    const int64_t lo = node->attrs.ints[2 * static_cast<size_t>(a)];
    dx = slice(dx, a, lo, lo + node->in[0].shape()[a]);
  }
  return {dx};
}

}  // namespace tenon
