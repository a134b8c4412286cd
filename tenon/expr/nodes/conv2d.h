// Two-dimensional convolution (cross-correlation) on NHWC images.
#pragma once
#include "tenon/core/matrix_product.h"
#include "tenon/expr/node_type.h"

namespace tenon::nodes {

/// x [N, H, W, C], w [O, C, kh, kw]; ints = stride, pad top, left, bottom, right. Accumulates in f32 and yields f32
/// [N, H', W', O]. Padding adds zeros to x as the convolution sees it, after whatever fills its input hole.
struct Conv2d : Anchor {
  static constexpr auto name = "conv2d";
  static constexpr int kArity = 2;
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape) {
    const Shape &x = in[0].shape(), &w = in[1].shape();
    TENON_CHECK(Usage, x.rank() == 4 && w.rank() == 4 && x[3] == w[1], "conv2d")
        << "x " << x.str() << " and w " << w.str() << " do not fit: expected x [N,H,W,C], w [O,C,kh,kw]";
    const auto& p = attrs.ints;
    bool good = p.size() == 5 && p[0] >= 1;
    for (size_t i = 1; good && i < 5; ++i) good = p[i] >= 0;
    TENON_CHECK(Usage, good, "conv2d") << "needs stride >= 1 and four paddings >= 0";
    const int64_t h = x[1] + p[1] + p[3] - w[2], v = x[2] + p[2] + p[4] - w[3];
    TENON_CHECK(Usage, h >= 0 && v >= 0, "conv2d") << "image " << x.str() << " is smaller than the kernel " << w.str();
    shape = {x[0], h / p[0] + 1, v / p[0] + 1, w[0]};
  }
  /// For the image: the convolution of g, spread out by the stride, with the filters flipped and their channel axes
  /// swapped. For the filters: one product per tap.
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
  /// For each output row, gathers its patches, then multiplies them by w as [O, kh * kw * C].
  static void reference(const Node& n, std::span<const double* const> in, double* out) {
    const Shape &x = n.in[0].shape(), &w = n.in[1].shape(), &y = n.shape;
    const int64_t stride = n.attrs.ints[0], top = n.attrs.ints[1], left = n.attrs.ints[2];
    const int64_t channels = x[3], kh = w[2], kw = w[3], depth = kh * kw * channels;
    std::vector<double> weights(static_cast<size_t>(w.numel())), patches(static_cast<size_t>(y[2] * depth));
    for (int64_t i = 0; i < w.numel(); ++i) {
      const int64_t tap = i % (kh * kw), c = i / (kh * kw) % channels, o = i / (kh * kw) / channels;
      weights[static_cast<size_t>((o * kh * kw + tap) * channels + c)] = in[1][i];
    }
    for (int64_t row = 0; row < y[0] * y[1]; ++row) {
      double* patch = patches.data();
      for (int64_t i = 0; i < y[2] * kh * kw; ++i, patch += channels) {
        const int64_t sy = row % y[1] * stride + i / kw % kh - top, sx = i / kw / kh * stride + i % kw - left;
        if (sy >= 0 && sy < x[1] && sx >= 0 && sx < x[2])
          std::copy_n(in[0] + ((row / y[1] * x[1] + sy) * x[2] + sx) * channels, channels, patch);
        else
          std::fill_n(patch, channels, 0.0);
      }
      multiply_transposed({patches.data(), y[2], depth, depth}, {weights.data(), y[3], depth, depth},
                          out + row * y[2] * y[3], y[3]);
    }
  }
};

}  // namespace tenon::nodes

NODE(Conv2d)

namespace tenon {

/// Convolution without bias: x [N,H,W,C], w [O,C,kh,kw]; pads = top, left, bottom, right.
inline Expr conv2d(const Expr& x, const Expr& w, int64_t stride = 1, std::array<int64_t, 4> pads = {0, 0, 0, 0}) {
  return make_node<nodes::Conv2d>({x, w}, {.ints = {stride, pads[0], pads[1], pads[2], pads[3]}});
}

}  // namespace tenon
