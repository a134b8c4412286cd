// Views in numbers: where an element of a view lies, and how far those behind it lie at constant steps.
#pragma once
#include "tenon/core/function_ref.h"
#include "tenon/expr/expr.h"

namespace tenon {

/// `run` positions in a tensor: at, at + step, at + 2 * step, ..
struct Walk {
  Coord at{}, step{};
  int64_t run = 1;
};

/// Reads the whole number at `at` of an index operand.
using LookUp = FunctionRef<int64_t(int operand, const Coord& at)>;

/// Follows positions in a view's result to the operand that they are read from, whose number it returns, or to zeros
/// (-1). Leaves the first position there, the steps, and how many positions they hold for: at least one, at most as
/// many as before. Error(Numeric) for a looked-up number that is out of range.
int follow(const Node& view, Walk& walk, LookUp look_up);

}  // namespace tenon
