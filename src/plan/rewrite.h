// Rewrites of a model's DAG that keep its meaning and give the planner less to do. Each is a named pass.
#pragma once
#include <span>
#include <vector>

#include "tenon/expr/expr.h"

namespace tenon {

/// Pointwise maths on literals only becomes a literal, and what only gradients see becomes its operand.
std::vector<Expr> fold_literals(Graph& g, std::span<const Expr> roots);

/// Linear layers that read the same rows become one: weights and biases are stacked, and each former result is a slice
/// of the new one. Covers a linear layer, factors of its rows (the same for all) and of its columns (which are stacked
/// too: the scales of quantised operands), a bias and a cast, in this order, where what follows are views or anchors
/// only (other maths belongs to a layer's own epilogue).
std::vector<Expr> merge_sibling_linears(Graph& g, std::span<const Expr> roots);

/// A constant factor of each channel (LayerScale, a literal) behind a linear layer becomes part of its weights and
/// bias, and one in front of linear layers, if nothing else reads the product, part of their weights: (x w + b) f = x
/// (w f) + b f, (z f) w = z (f w). Weights are scaled in f32, from the unrounded parameter, and rounded once.
std::vector<Expr> fold_scales(Graph& g, std::span<const Expr> roots);

/// A linear layer whose result a linear layer reads alone becomes part of that one, with a bias and a residual added in
/// between: w2 (w1 h + b + r) = [w2 w1, w2] [h, r] + w2 b, where that takes no more multiplications. Saves a launch, a
/// store and a load, and the rounding of what was stored. w2 w1 is computed in f32 from unrounded parameters, by
/// launches of the constant phase, and rounded once. For targets whose launches cost much.
std::vector<Expr> compose_layers(Graph& g, std::span<const Expr> roots);

/// True for a quantised type: its numbers are what they are, another scale would round them again.
bool quantized(const Expr& x);
/// True for a linear layer [.., K] x [N, K] whose weights do not change and are not quantised.
bool constant_layer(const Expr& e);
/// A weight as it was before it was rounded to the type that it is multiplied in, as f32.
Expr unrounded(const Expr& w);

/// The users of every node below `roots`.
class Users {
 public:
  explicit Users(std::span<const Expr> roots);
  /// Nodes that read e, each once, in topological order.
  const std::vector<Expr>& of(const Expr& e) const;

 private:
  std::unordered_map<const Node*, std::vector<Expr>> users_;
  std::vector<Expr> none_;
};

}  // namespace tenon
