// What only backends ask of forms.
#pragma once
#include "tenon/kernels/form.h"

namespace tenon {

/// A copy in its own graph, to which its owner may add nodes.
Form own_copy(const Form& form);
/// The lane that `leaf` stands for, or -1.
int acc_lane(const Expr& leaf);
/// `e` without an outermost rounding to `type`: what stores or packs it as that type rounds anyway.
Expr without_rounding(const Expr& e, DType type);
/// The axis at which the rows of pointwise maths begin if they do at `split`, and axes may be merged: rows are long
/// enough that what is done once per row does not count.
int split_of_long_rows(const Shape& domain, int split);

}  // namespace tenon
