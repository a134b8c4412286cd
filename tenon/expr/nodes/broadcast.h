// Broadcasting: axes of extent 1, and missing leading axes, are repeated.
#pragma once
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

struct Broadcast : View {
  static constexpr auto name = "broadcast";
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape) {
    TENON_CHECK(Usage, attrs.dims, "broadcast") << "needs a shape";
    TENON_CHECK(Usage, broadcast_shapes(in[0].shape(), *attrs.dims) == *attrs.dims, "broadcast")
        << "cannot repeat " << in[0].shape().str() << " to " << attrs.dims->str();
    shape = *attrs.dims;
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    const Shape& from = n.in[0].shape();
    const int lead = n.shape.rank() - from.rank();
    Indices x{};
    for (int i = 0, at = lead; i < from.rank(); ++i, ++at)
      x[static_cast<size_t>(i)] = from[i] == 1 ? a.number(0) : c[static_cast<size_t>(at)];
    a.read(0, x);
  }
  static std::vector<Expr> vjp(const Expr& node, const Expr& g) { return {sum_to_shape(g, node->in[0].shape())}; }
};

}  // namespace tenon::nodes

NODE(Broadcast)

namespace tenon {

/// x repeated to `shape` by NumPy's rules. x itself if it has that shape.
inline Expr broadcast(const Expr& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return make_node<nodes::Broadcast>({x}, {.dims = shape});
}

}  // namespace tenon
