// Reshape: the same elements, in row-major order, with another shape.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

struct Reshape : View {
  static constexpr auto name = "reshape";
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape) {
    const Shape dims = attrs.dims.value_or(Shape());
    TENON_CHECK(Usage, attrs.dims && dims.numel() == in[0].shape().numel(), "reshape")
        << "cannot view " << in[0].shape().str() << " as " << dims.str();
    shape = dims;
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    a.read(0, a.unravel(a.ravel(c, n.shape), n.in[0].shape()));
  }
  static Expr inverse(const Node& n, const Expr& y);
};

}  // namespace tenon::nodes

NODE(Reshape)

namespace tenon {

/// x with another shape of as many elements. x itself if it has that shape.
inline Expr reshape(const Expr& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  if (x.is<nodes::Reshape>()) return reshape(x->in[0], shape);
  return make_node<nodes::Reshape>({x}, {.dims = shape});
}

inline Expr nodes::Reshape::inverse(const Node& n, const Expr& y) { return reshape(y, n.in[0].shape()); }

}  // namespace tenon
