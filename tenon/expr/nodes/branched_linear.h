// A linear layer with a branch of few columns beside it (a LoRA), as one product: the planner makes it of both where a
// device has a kernel for it.
#pragma once
#include <algorithm>

#include "tenon/expr/nodes/linear.h"

namespace tenon::nodes {

/// x w^T, times each factor, plus u v^T. Operands: x [.., K] and w [N, K], multiplied in the arithmetic of the node;
/// u [.., R] and v [N, R], multiplied in their own type; then at most two factors, f32 of the result's shape (scales of
/// quantised rows and columns). Yields the f32 accumulator.
struct BranchedLinear : Anchor {
  static constexpr auto name = "branched_linear";
  static constexpr int kArity = -1, kFactors = 2;
  static constexpr size_t kOperands = 4;  ///< without factors
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape, DType& dtype) {
    TENON_CHECK(Usage, in.size() >= kOperands && in.size() <= kOperands + 2, "branched_linear")
        << "has " << in.size() << " operands, expected x, w, u, v and at most two factors";
    Shape beside;
    Linear::infer(in.first(2), attrs, shape, dtype);
    Linear::infer(in.subspan(2, 2), attrs, beside, dtype);
    bool good = beside == shape && in[1].shape().rank() == 2 && in[2].dtype() == in[3].dtype();
    for (const Expr& f : in.subspan(kOperands)) good = good && f.shape() == shape;
    TENON_CHECK(Usage, good, "branched_linear") << "u " << in[2].shape().str() << ", v " << in[3].shape().str()
                                                << " and factors do not fit a layer of " << shape.str();
  }
  static void reference(const Node& n, std::span<const double* const> in, double* out) {
    const Shape &x = n.in[0].shape(), &u = n.in[2].shape();
    const int64_t rows = x.rows(), columns = n.shape.cols(), all = rows * columns;
    std::vector<double> branch(static_cast<size_t>(all));
    std::fill_n(out, all, 0.0);
    if (all && x[-1]) multiply_transposed({in[0], rows, x[-1], x[-1]}, {in[1], columns, x[-1], x[-1]}, out, columns);
    if (all && u[-1])
      multiply_transposed({in[2], rows, u[-1], u[-1]}, {in[3], columns, u[-1], u[-1]}, branch.data(), columns);
    for (int64_t i = 0; i < all; ++i) {
      for (const double* factor : in.subspan(kOperands)) out[i] *= factor[i];
      out[i] += branch[static_cast<size_t>(i)];
    }
  }
};

}  // namespace tenon::nodes

NODE(BranchedLinear)

namespace tenon {

/// `layer` times `factors` plus `branch`, both linear layers, as one node in the arithmetic of `layer`.
inline Expr branched_linear(const Expr& layer, const Expr& branch, std::span<const Expr> factors) {
  std::vector<Expr> in{layer->in[0], layer->in[1], branch->in[0], branch->in[1]};
  in.insert(in.end(), factors.begin(), factors.end());
  return layer.graph().make(node_type<nodes::BranchedLinear>(), in, layer->attrs);
}

/// A linear layer, with or without a branch: rows of operand 0 are multiplied by rows of operand 1.
inline bool multiplies_rows(const Expr& e) { return e.is<nodes::Linear>() || e.is<nodes::BranchedLinear>(); }

}  // namespace tenon
