// A norm in front of a product whose weights hold the norm's own: the factor of each row comes behind the sums, so that
// nothing waits for it.
#pragma once
#include <optional>

#include "tenon/expr/expr.h"

namespace tenon::cuda {

/// rows * f(reduction of rows): what a root-mean-square norm is.
struct RowFactor {
  Expr rows;       ///< [.., k] as they lie in memory
  Expr reduction;  ///< over the last axis, of a function of `rows` alone
  Expr factor;     ///< [.., 1], a function of `reduction` alone
};

/// `value` in these parts, whose roundings to `unit` are left out: the rows hold its values as they are, and the sums
/// are f32. Nothing if it has others.
std::optional<RowFactor> row_factor(const Expr& value, DType unit);

/// What is reduced, of elements `x` that stand for the rows.
Expr reduced_part(const RowFactor& f, const Expr& x);
/// The factor for every column of `reduced`, which stands for the reduction.
Expr factor_of(const RowFactor& f, const Expr& reduced);

}  // namespace tenon::cuda
