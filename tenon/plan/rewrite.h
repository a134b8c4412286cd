// Rewrites of a model's DAG that preserve its meaning and simplify planning. Each is a named pass.
#pragma once
#include <span>
#include <unordered_set>
#include <vector>

#include "tenon/expr/expr.h"
#include "tenon/kernels/target.h"

namespace tenon {

/// Replaces pointwise maths on literals by a literal, and nodes that only matter to gradients by their operand.
std::vector<Expr> fold_literals(Graph& g, std::span<const Expr> roots);

/// Merges linear layers that read the same rows: weights and biases are stacked, and each former result is a slice of
/// the new one. Handles a linear layer, then factors of its rows (the same for all layers) or columns (stacked too: the
/// scales of quantised operands), then a bias, then a cast, provided that all readers are views or anchors (other maths
/// belongs in a layer's own epilogue).
std::vector<Expr> merge_sibling_linears(Graph& g, std::span<const Expr> roots);

/// Folds a constant factor per channel (LayerScale, a literal) after a linear layer into its weights and bias, and one
/// before linear layers, if nothing else reads the product, into their weights: (x w + b) f = x (w f) + b f,
/// (z f) w = z (f w). Weights are scaled in f32, from the unrounded parameter, and rounded once. If anything is f16, or
/// will be (`f16`), literals that are not near 1 are left alone: numbers would overflow or lose digits.
std::vector<Expr> fold_scales(Graph& g, std::span<const Expr> roots, bool f16 = false);

/// Merges two linear layers if one reads the sum of the other's result and a tensor in memory: one layer reads both
/// inputs side by side, u (w g + b + h) = [u w, u] [g, h] + u b, if nothing else reads the sum and it takes no more
/// operations. The product of the weights is a computed parameter: computed in f32, rounded once. The sum itself is no
/// longer rounded.
std::vector<Expr> fold_products(Graph& g, std::span<const Expr> roots);

/// True for a linear layer with constant weights and nothing quantised.
bool constant_layer(const Expr& e);
/// The constant vector that `e` repeats in every row, one number per column (a bias); empty if it is none.
Expr constant_row(const Expr& e);

/// Replaces anchors that `target` has no kernel for, and reductions over inner axes that are no statistics, by others.
std::vector<Expr> take_apart(Graph& g, std::span<const Expr> roots, const Target& target);

/// Joins the sum of two linear layers into one anchor where `target` has a kernel for it: a low-rank branch with
/// constant weights beside its layer. The sum is rounded once, to the wider one's type, instead of each result.
std::vector<Expr> join_branches(Graph& g, std::span<const Expr> roots, const Target& target);

/// The users of every node below `roots`.
class Users {
 public:
  explicit Users(std::span<const Expr> roots);
  /// Nodes that read e, once each, in topological order.
  const std::vector<Expr>& of(const Expr& e) const;
  bool is_root(const Expr& e) const { return roots_.contains(e.get()); }
  /// True if exactly one node reads e and e is not a root.
  bool only_one(const Expr& e) const { return of(e).size() == 1 && !is_root(e); }

 private:
  std::unordered_set<const Node*> roots_;
  std::unordered_map<const Node*, std::vector<Expr>> users_;
  std::vector<Expr> none_;
};

}  // namespace tenon
