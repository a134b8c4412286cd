// What a view does besides moving elements, so that the planner's rules need not know views by name; chains of views.
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
/// True if `e` and all nodes below it are views and leaves.
bool is_view_chain(const Expr& e);

}  // namespace tenon
