// The order in which a plan computes values.
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "tenon/expr/expr.h"

namespace tenon {

struct Stages {
  std::vector<Expr> values;                    ///< operands before their readers, lower stages before higher ones
  std::unordered_map<const Node*, double> of;  ///< stage of a value: the highest of the barriers below it, or -1
};
/// Orders everything below `roots`. If there are barriers, operands with longer chains below them come first, so that a
/// value that is recomputed comes right before its reader. Throws Error(Usage) for a barrier whose stage is not finite.
Stages order_of_stages(std::span<const Expr> roots);

}  // namespace tenon
