// A norm before a product whose weights already include the norm's own weights: each row's factor is applied after the
// sums, so that the product does not wait for it.
#pragma once
#include <optional>

#include "tenon/expr/expr.h"

namespace tenon::cuda {

/// rows * f(reduction of rows), the form of a root-mean-square norm.
struct RowFactor {
  Expr rows;       ///< [.., k] as they lie in memory
  Expr reduction;  ///< over the last axis, of a function of `rows` alone
  Expr factor;     ///< [.., 1], a function of `reduction` alone
};

/// Splits `value` into these parts, dropping roundings to `unit`: the rows hold their values unchanged, and the sums
/// are f32. Empty if `value` does not have this form.
std::optional<RowFactor> row_factor(const Expr& value, DType unit);

/// The reduced expression, over elements `x` that stand for the rows.
Expr reduced_part(const RowFactor& f, const Expr& x);
/// The factor for every column of `reduced`, which stands for the reduction.
Expr factor_of(const RowFactor& f, const Expr& reduced);

}  // namespace tenon::cuda
