// Rewrites of a model's DAG that keep its meaning and give the planner less to do. Each is a named pass.
#pragma once
#include <span>
#include <unordered_set>
#include <vector>

#include "tenon/expr/expr.h"
#include "tenon/kernels/target.h"

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

/// A linear layer of the sum of another one's result and of something that lies in memory becomes one layer over both,
/// side by side: u (w g + b + h) = [u w, u] [g, h] + u b, where nothing else reads the sum and it takes no more
/// operations. The product of the weights is a computed parameter: in f32, and rounded once. The sum is not rounded any
/// more.
std::vector<Expr> fold_products(Graph& g, std::span<const Expr> roots);

/// A linear layer of constant weights, of which nothing is quantised.
bool constant_layer(const Expr& e);

/// Anchors that `target` has no kernel for become the nodes that they can be taken apart into.
std::vector<Expr> take_apart(Graph& g, std::span<const Expr> roots, const Target& target);

/// The sum of two linear layers, of which the narrower one's weights are constant, becomes one anchor where `target`
/// has a kernel for it: a low-rank branch beside its layer. What either was rounded to before is rounded once, behind
/// the sum, to the wider one's type.
std::vector<Expr> join_branches(Graph& g, std::span<const Expr> roots, const Target& target);

/// The users of every node below `roots`.
class Users {
 public:
  explicit Users(std::span<const Expr> roots);
  /// Nodes that read e, each once, in topological order.
  const std::vector<Expr>& of(const Expr& e) const;
  bool is_root(const Expr& e) const { return roots_.contains(e.get()); }
  /// True if one node reads e and nobody else wants it.
  bool only_one(const Expr& e) const { return of(e).size() == 1 && !is_root(e); }

 private:
  std::unordered_set<const Node*> roots_;
  std::unordered_map<const Node*, std::vector<Expr>> users_;
  std::vector<Expr> none_;
};

}  // namespace tenon
