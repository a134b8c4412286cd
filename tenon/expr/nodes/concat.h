// Concatenation along one axis: ints[0].
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/slice.h"

namespace tenon::nodes {

struct Concat : View {
  static constexpr auto name = "concat";
  static constexpr int kArity = -1;
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape) {
    TENON_CHECK(Usage, attrs.ints.size() == 1 && attrs.ints[0] >= 0 && attrs.ints[0] < shape.rank(), "concat")
        << "needs an axis inside " << shape.str();
    const int axis = static_cast<int>(attrs.ints[0]);
    for (size_t i = 1; i < in.size(); ++i) {
      Shape other = in[i].shape();
      TENON_CHECK(Usage, other.rank() == shape.rank() && in[i].dtype() == in[0].dtype(), "concat")
          << "cannot join " << name_of(in[0].dtype()) << shape.str() << " and " << name_of(in[i].dtype())
          << other.str();
      const int64_t extent = other[axis];
      other[axis] = shape[axis];
      TENON_CHECK(Usage, other == shape, "concat")
          << "cannot join " << shape.str() << " and " << in[i].shape().str() << " along axis " << axis;
      shape[axis] += extent;
    }
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    const int axis = static_cast<int>(n.attrs.ints[0]);
    std::vector<int64_t> extents;
    for (const Expr& x : n.in) extents.push_back(x.shape()[axis]);
    a.part(c[static_cast<size_t>(axis)], extents, [&](int operand, Index place) {
      Indices x = c;
      x[static_cast<size_t>(axis)] = place;
      a.read(operand, x);
    });
  }
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
};

}  // namespace tenon::nodes

NODE(Concat)

namespace tenon {

/// Concatenates the operands along `axis` (negative: from the last). A single operand is returned as it is.
inline Expr concat(std::span<const Expr> in, int axis) {
  TENON_CHECK(Usage, !in.empty(), "concat") << "needs an operand";
  if (in.size() == 1) return in[0];
  return make_node<nodes::Concat>(in, {.ints = {in[0].shape().axis(axis, "concat")}});
}
inline Expr concat(std::initializer_list<Expr> in, int axis) {
  return concat(std::span<const Expr>(in.begin(), in.size()), axis);
}

/// As slice; if x is a concatenation along `axis` and the range lies within one operand, slices that operand instead.
inline Expr slice_of_part(const Expr& x, int axis, int64_t begin, int64_t end) {
  if (!x.is<nodes::Concat>() || x->attrs.ints[0] != axis) return slice(x, axis, begin, end);
  int64_t first = 0;
  for (const Expr& part : x->in) {
    const int64_t behind = first + part.shape()[axis];
    if (first <= begin && end <= behind) return slice_of_part(part, axis, begin - first, end - first);
    first = behind;
  }
  return slice(x, axis, begin, end);
}

inline std::vector<Expr> nodes::Concat::vjp(const Expr& node, const Expr& g) {
  std::vector<Expr> grads;
  const int axis = static_cast<int>(node->attrs.ints[0]);
  int64_t begin = 0;
  for (const Expr& x : node->in) {
    grads.push_back(slice_of_part(g, axis, begin, begin + x.shape()[axis]));
    begin += x.shape()[axis];
  }
  return grads;
}

}  // namespace tenon
