// The order in which a plan computes values.
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "tenon/expr/expr.h"

namespace tenon {

struct Stages {
  std::vector<Expr> values;                    ///< operands before their readers, lower stages before higher ones
  std::unordered_map<const Node*, double> of;  ///< highest stage of the barriers that a value stands behind; -1: none
};
/// Everything below `roots`. Where there are barriers, of several operands the one behind the longest chain comes
/// first, so that what is computed a second time comes just before it is read. Throws Error(Usage) for a barrier whose
/// stage is not finite.
Stages order_of_stages(std::span<const Expr> roots);

}  // namespace tenon
