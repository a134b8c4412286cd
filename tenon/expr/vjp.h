// Reverse accumulation: the gradient of an expression is another expression of the same graph, planned like any other.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "tenon/expr/expr.h"

namespace tenon {

/// Gradients of sum(seed * y) by each of `wrt` (any nodes, except reshapes that other reshapes read: these read the
/// first one's operand): f32, of wrt[i]'s shape. `seed` has y's shape; empty means ones. Zeros where y does not depend
/// on wrt[i], or only through stop_gradient or integers (no slope). Throws Error(Usage) that names a node on the path
/// without gradient rule. An intermediate f16 or bf16 value's gradient is rounded to that type, except a weight's.
///
/// `rule` is asked for every node on the path, given its gradient; it returns the gradients of the node's operands, as
/// the node's own rule does, or nothing to use that rule.
using GradientRule = std::function<std::vector<Expr>(const Expr& node, const Expr& g)>;
std::vector<Expr> gradients(const Expr& y, const Expr& seed, std::span<const Expr> wrt, const GradientRule& rule = {});

}  // namespace tenon
