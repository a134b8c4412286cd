// Reverse accumulation: the gradient of an expression is another expression of the same graph, planned like any other.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "tenon/expr/expr.h"

namespace tenon {

/// Gradients of sum(seed * y) with respect to each of `wrt` (any nodes, f32, shape of wrt[i]). `seed` has y's shape, or
/// is empty for ones. Zeros where y does not depend on wrt[i]. Throws Error(Usage) naming the node if a node on the way
/// has no gradient rule. On the way the gradient of a value of f16 or bf16 that is no weight is rounded
/// to that type.
///
/// `rule`, asked of every node on the way with its gradient, returns those of the node's operands, as the node's own
/// rule does; none: the node's own.
using GradientRule = std::function<std::vector<Expr>(const Expr& node, const Expr& g)>;
std::vector<Expr> gradients(const Expr& y, const Expr& seed, std::span<const Expr> wrt, const GradientRule& rule = {});

}  // namespace tenon
