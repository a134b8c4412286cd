#include "tenon/nn/penalty.h"

#include "tenon/expr/ops.h"

namespace tenon::nn {

Expr penalised(const Expr& scores, const Expr& seen, const Expr& penalty) {
  const Expr other = where(less(scores, constant(scores.graph(), 0)), scores * penalty, scores / penalty);
  return where(seen, other, scores);
}

}  // namespace tenon::nn
