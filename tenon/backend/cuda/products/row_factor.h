// A norm before a product: each row's factor is applied after the sums, so that the product does not wait for it. The
// norm's own weights are part of the product's.
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

/// (rows - mean) * f(variance of rows) * gain + shift, the form of a layer norm. Its product with weights is
/// f * (rows . w - mean * sum(w)) + shift . weights, w being weights * gain minus a number that makes sum(w) zero, but
/// for rounding.
struct CentredNorm {
  RowFactor factor;  ///< its reduction is the variance
  Expr gain, shift;  ///< [k], of weights only; either may be empty
};

/// Splits `value` like row_factor. Empty if `value` does not have this form.
std::optional<CentredNorm> centred_norm(const Expr& value, DType unit);

/// w from the product's weights [n, k], in f32.
Expr centred_weights(const CentredNorm& norm, const Expr& weights);
/// sum(w) as it is multiplied, rounded to `unit`, and shift . weights (empty without a shift), both [n, 1].
Expr sums_of_weights(const CentredNorm& norm, const Expr& weights, DType unit);
Expr shift_of_weights(const CentredNorm& norm, const Expr& weights);

}  // namespace tenon::cuda
