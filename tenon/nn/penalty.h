// Penalises tokens that a text already contains.
#pragma once
#include "tenon/expr/expr.h"

namespace tenon::nn {

/// Scores [R, V] in which those of `seen` tokens (non-zero in a tensor of the same shape) are divided by `penalty`
/// [R, 1], or multiplied if negative.
Expr penalised(const Expr& scores, const Expr& seen, const Expr& penalty);

}  // namespace tenon::nn
