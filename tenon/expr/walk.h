// Views evaluated on integers: where an element of a view is found, and for how many more the steps stay constant.
#pragma once
#include "tenon/core/function_ref.h"
#include "tenon/expr/expr.h"

namespace tenon {

/// `run` positions in a tensor: at, at + step, at + 2 * step, ..
struct Walk {
  Coord at{}, step{};
  int64_t run = 1;
};

/// Reads the integer at `at` of an index operand.
using LookUp = FunctionRef<int64_t(int operand, const Coord& at)>;

/// Maps positions in a view's result to the operand they are read from and returns that operand's number, or -1 for
/// zeros. Updates `walk` to the first position there, the steps, and the number of positions they hold for: at least
/// one, at most as many as before. Throws Error(Numeric) for an index value out of range.
int follow(const Node& view, Walk& walk, LookUp look_up);

}  // namespace tenon
