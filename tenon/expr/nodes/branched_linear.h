// A linear layer with a narrow side branch (a LoRA) as one product. The planner joins the two where a device has a
// kernel for it.
#pragma once
#include "tenon/expr/nodes/arithmetic.h"
#include "tenon/expr/nodes/linear.h"

namespace tenon::nodes {

/// x w^T, times each factor, plus u v^T. Operands: x [.., K] and w [N, K], multiplied in the arithmetic of the node; u
/// [.., R] and v [N, R], multiplied in their own type; then at most two factors, f32 of the result's shape (scales of
/// quantised rows and columns). Yields the f32 accumulator.
struct BranchedLinear : Anchor {
  static constexpr auto name = "branched_linear";
  static constexpr int kArity = -1, kFactors = 2;
  static constexpr size_t kOperands = 4, kMaxFactors = 2;  ///< kOperands: without factors
  static void infer(std::span<const Expr> in, const Attrs& attrs, Shape& shape) {
    TENON_CHECK(Usage, in.size() >= kOperands && in.size() <= kOperands + kMaxFactors, "branched_linear")
        << "has " << in.size() << " operands, expected x, w, u, v and at most two factors";
    Shape beside;
    Linear::infer(in.first(2), attrs, shape);
    Linear::infer(in.subspan(2, 2), attrs, beside);
    bool good = beside == shape && in[1].shape().rank() == 2 && in[2].dtype() == in[3].dtype();
    for (const Expr& f : in.subspan(kOperands)) good = good && f.shape() == shape;
    TENON_CHECK(Usage, good, "branched_linear") << "u " << in[2].shape().str() << ", v " << in[3].shape().str()
                                                << " and factors do not fit a layer of " << shape.str();
  }
  static Expr apart(const Expr& node);
};

}  // namespace tenon::nodes

NODE(BranchedLinear)

namespace tenon {

/// `layer` times `factors` plus `branch`, both linear layers, as one node in the arithmetic of `layer`.
inline Expr branched_linear(const Expr& layer, const Expr& branch, std::span<const Expr> factors) {
  std::vector<Expr> in{layer->in[0], layer->in[1], branch->in[0], branch->in[1]};
  in.insert(in.end(), factors.begin(), factors.end());
  return make_node<nodes::BranchedLinear>(in, layer->attrs);
}

inline Expr nodes::BranchedLinear::apart(const Expr& node) {
  const std::vector<Expr>& in = node->in;
  Expr y = make_node<Linear>({in[0], in[1]}, node->attrs);
  for (const Expr& factor : std::span(in).subspan(kOperands)) y = y * factor;
  return y + linear(in[2], in[3]);
}

/// True for a linear layer, with or without a branch: rows of operand 0 times rows of operand 1.
inline bool multiplies_rows(const Expr& e) { return e.is<nodes::Linear>() || e.is<nodes::BranchedLinear>(); }

}  // namespace tenon
