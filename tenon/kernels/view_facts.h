// What a view does besides moving elements, so that the planner's rules need not know views by name.
#pragma once
#include "tenon/expr/expr.h"

namespace tenon {

struct ViewFacts {
  bool fills = false;     ///< some elements are zero, whatever the operand
  bool joins = false;     ///< has elements of more than one operand
  bool looks_up = false;  ///< an operand's values determine where elements are found
};

/// Throws Error(Internal) if `e` is not a view.
ViewFacts view_facts(const Expr& e);

}  // namespace tenon
