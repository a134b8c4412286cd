// Matrix product, the form of every linear layer: y[.., m, n] = sum_k x[.., m, k] * w[.., n, k].
#pragma once
#include "tenon/core/i8_blocks.h"
#include "tenon/core/matrix_product.h"
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/permute.h"
#include "tenon/expr/nodes/reshape.h"

namespace tenon::nodes {

/// x [.., K]; w [N, K], or [.., N, K] with x's leading axes for one matrix each. Accumulates in f32 and yields f32. In
/// i8 it quantises its operands itself (core/i8_blocks.h), since its sum needs the blocks' scales: x is f32, w f16.
struct Linear : Anchor {
  static constexpr auto name = "linear";
  static constexpr int kArity = 2;
  static bool batched(const Shape& x, const Shape& w) { return w.rank() > 2 && x.rank() == w.rank(); }
  static void infer(std::span<const Expr> in, const Attrs&, Shape& shape) {
    const Shape &x = in[0].shape(), &w = in[1].shape();
    bool good = x.rank() >= 1 && (w.rank() == 2 || batched(x, w)) && x[-1] == w[-1];
    for (int a = 0; good && a < w.rank() - 2; ++a) good = x[a] == w[a];
    TENON_CHECK(Usage, good, "linear") << "x " << x.str() << " and w " << w.str()
                                       << " do not fit: expected x [.., K], w [N, K]";
    shape = x;
    shape[-1] = w[-2];
  }
  static void reference(const Node& n, std::span<const double* const> in, double* out) {
    const Shape &x = n.in[0].shape(), &w = n.in[1].shape();
    const int64_t k = x[-1], cols = w[-2];
    const int64_t rows = batched(x, w) ? x[-2] : x.rows();
    const int64_t matrices = batched(x, w) ? w.numel() / std::max<int64_t>(1, cols * k) : 1;
    std::vector<double> a, b;
    if (n.attrs.dtype == DType::I8)
      a = i8_rows(in[0], x.rows(), k, BlockScale::F32), b = i8_rows(in[1], w.rows(), k, BlockScale::F16);
    const double *left = a.empty() ? in[0] : a.data(), *right = b.empty() ? in[1] : b.data();
    if (k == 0) std::fill_n(out, n.shape.numel(), 0.0);
    for (int64_t m = 0; k && rows && m < matrices; ++m)
      multiply_transposed({left + m * rows * k, rows, k, k}, {right + m * cols * k, cols, k, k}, out + m * rows * cols,
                          cols);
  }
  static std::vector<Expr> vjp(const Expr& node, const Expr& g);
};

}  // namespace tenon::nodes

NODE(Linear)

namespace tenon {

/// y = x w^T without bias: x [.., K], w [N, K] or one matrix per leading index.
inline Expr linear(const Expr& x, const Expr& w) { return make_node<nodes::Linear>({x, w}); }

/// a [.., M, K] times b [.., K, N].
inline Expr matmul(const Expr& a, const Expr& b) { return linear(a, transpose(b)); }

inline std::vector<Expr> nodes::Linear::vjp(const Expr& node, const Expr& g) {
  const Expr &x = node->in[0], &w = node->in[1];
  if (batched(x.shape(), w.shape())) return {linear(g, transpose(w)), linear(transpose(g), transpose(x))};
  const int64_t rows = std::max(x.shape().rows(), g.shape().rows());  // 0 for a shape without columns
  const Expr rows_x = reshape(x, {rows, x.shape()[-1]}), rows_g = reshape(g, {rows, g.shape()[-1]});
  return {linear(g, transpose(w)), linear(transpose(rows_g), transpose(rows_x))};
}

}  // namespace tenon
