// What a view does besides moving elements: what the planner's rules ask, so that they need no view's name.
#pragma once
#include "tenon/expr/expr.h"

namespace tenon {

struct ViewFacts {
  bool fills = false;     ///< some elements are zero, whatever the operand is
  bool joins = false;     ///< elements of more than one operand
  bool looks_up = false;  ///< where elements are depends on an operand's values
};

/// Error(Internal) if `e` is not a view.
ViewFacts view_facts(const Expr& e);

}  // namespace tenon
