// Scores of tokens that a text has already.
#pragma once
#include "tenon/expr/expr.h"

namespace tenon::nn {

/// Scores [R, V], those of tokens that were `seen` (a number of the same shape that is not 0) divided by `penalty`
/// [R, 1], negative ones multiplied by it.
Expr penalised(const Expr& scores, const Expr& seen, const Expr& penalty);

}  // namespace tenon::nn
