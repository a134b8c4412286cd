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

}  // namespace tenon
