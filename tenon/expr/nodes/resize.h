// Nearest-neighbour resizing of images [N, H, W, C]; the 2x upsample of diffusion decoders is one case. ints = H', W'.
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/compare.h"
#include "tenon/expr/nodes/linear.h"

namespace tenon::nodes {

/// Row i of the result is row nearest_source(i, H, H') of the image.
struct Resize : View {
  static constexpr auto name = "resize";
  static void infer(std::span<const Expr>, const Attrs& attrs, Shape& shape) {
    TENON_CHECK(Usage, shape.rank() == 4 && attrs.ints.size() == 2 && attrs.ints[0] > 0 && attrs.ints[1] > 0, "resize")
        << "needs [N,H,W,C] and a size, got " << shape.str();
    TENON_CHECK(Usage, shape[1] > 0 && shape[2] > 0, "resize") << shape.str() << " has no pixels to repeat";
    shape[1] = attrs.ints[0];
    shape[2] = attrs.ints[1];
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    for (int axis = 1; axis <= 2; ++axis) {
      const int64_t from = n.in[0].shape()[axis], to = n.shape[axis];
      Index& i = c[static_cast<size_t>(axis)];
      if (to != from) i = to == 2 * from ? a.halved(i).quotient : a.nearest(i, from, to);
    }
    a.read(0, c);
  }
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
};

}  // namespace tenon::nodes

NODE(Resize)

namespace tenon {

/// Images x [N, H, W, C] resized to height x width by nearest neighbour.
inline Expr resize_nearest(const Expr& x, int64_t height, int64_t width) {
  return make_node<nodes::Resize>({x}, {.ints = {height, width}});
}
/// Images x [N, H, W, C] at twice the size, each pixel repeated 2 x 2.
inline Expr upsample2x(const Expr& x) { return resize_nearest(x, 2 * x.shape()[1], 2 * x.shape()[2]); }

/// One axis at a time: a product with the 0/1 matrix of the resize, i.e. a resized identity matrix.
inline std::vector<Expr> nodes::Resize::vjp(const Expr& node, const Expr& g) {
  Expr dx = g;
  for (int axis = 1; axis <= 2; ++axis) {
    const int64_t in = node->in[0].shape()[axis], out = node->shape[axis];
    if (in == out) continue;
    const Expr i = iota(g.graph(), in);
    const Expr identity = equal(reshape(i, {1, in, 1, 1}), reshape(i, {1, 1, 1, in}));
    const Expr source_of = reshape(resize_nearest(identity, out, 1), {out, in});
    dx = with_axis_last(dx, axis, [&](const Expr& x) { return matmul(x, source_of); });
  }
  return {dx};
}

}  // namespace tenon
