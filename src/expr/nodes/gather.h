// Gather: rows of x chosen by whole numbers: out[i.., :] = x[index[i..], :].
#pragma once
#include "tenon/expr/node_type.h"
#include "tenon/expr/nodes/broadcast.h"
#include "tenon/expr/nodes/compare.h"
#include "tenon/expr/nodes/linear.h"

namespace tenon::nodes {

/// Operands x [V, ..] and index (i32 or i64, any shape, a scalar too). An index outside 0..V-1 is an error when it is
/// read.
struct Gather : View {
  static constexpr auto name = "gather";
  static constexpr int kArity = 2;
  static void infer(std::span<const Expr> in, const Attrs&, Shape& shape, DType& dtype) {
    const Shape &x = in[0].shape(), &index = in[1].shape();
    TENON_CHECK(Usage, x.rank() >= 1, "gather") << "x needs an axis to choose from";
    TENON_CHECK(Usage, in[1].dtype() == DType::I32 || in[1].dtype() == DType::I64, "gather")
        << "the index must be i32 or i64, got " << name_of(in[1].dtype());
    std::vector<int64_t> dims(index.begin(), index.end());
    dims.insert(dims.end(), x.begin() + 1, x.end());
    shape = Shape(dims);
    dtype = in[0].dtype();
  }
  static void map(const Node& n, IndexAlgebra& a, Indices c) {
    const Shape& x = n.in[0].shape();
    Indices at{};
    at[0] = a.look_up(1, c, x[0]);
    for (int i = 1; i < x.rank(); ++i)
      at[static_cast<size_t>(i)] = c[static_cast<size_t>(i - 1 + n.in[1].shape().rank())];
    a.read(0, at);
  }
  /// Rows of g summed into the rows that they came from, as a product with a one-hot matrix.
  static std::vector<Expr> vjp(const Expr& node, const Expr& g) {
    const Expr &x = node->in[0], &index = node->in[1];
    const int64_t n = index.shape().numel(), v = x.shape()[0], d = v ? x.shape().numel() / v : 0;
    const Expr wanted = broadcast(reshape(index, {1, n}), {v, n});
    const Expr row = broadcast(reshape(iota(x.graph(), v), {v, 1}), {v, n});
    return {reshape(linear(equal(row, wanted), transpose(reshape(g, {n, d}))), x.shape()), Expr()};
  }
};

}  // namespace tenon::nodes

NODE(Gather)

namespace tenon {

/// Rows of x chosen by `index`: shape index.shape + x.shape[1:].
inline Expr gather(const Expr& x, const Expr& index) {
  return x.graph().make(node_type<nodes::Gather>(), std::array{x, index});
}

}  // namespace tenon
