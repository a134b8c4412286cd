// The type that operands of anchors are multiplied in, and rows quantised to e4m3 or i8 with a scale.
#pragma once
#include <optional>

#include "tenon/expr/expr.h"

namespace tenon {

/// True if `arithmetic` represents every value of element type `t`, so that multiplying in it rounds no operand: the
/// type itself, e4m3 and i8 in f16 and bf16, everything in f32.
bool holds(DType arithmetic, DType t);

/// The element type that the anchor's operands are multiplied in (sums are f32), an attribute of the node. Empty until
/// it is set; planning sets it at the latest (plan/precision.h).
std::optional<DType> arithmetic_of(const Expr& anchor);
/// The same anchor, multiplied in `arithmetic`. Throws Error(Usage) if that cannot represent all values of an operand.
Expr multiplied_in(const Expr& anchor, DType arithmetic);
/// The same anchor, with its attributes, over other operands.
Expr with_operands(const Expr& anchor, std::initializer_list<Expr> in);

/// Rows quantised to e4m3 or i8 with one scale each: x is about q * scale.
struct QuantizedRows {
  Expr q;      ///< x's shape
  Expr scale;  ///< f32, x's shape with a last axis of 1
};

/// scale = max(absmax of the row, 1e-12) / 448; q = x / scale, rounded to nearest even, at most 448. A row of zeros
/// thus yields zeros; a NaN makes its whole row NaN, and an infinity makes its row's scale infinite. For i8, 127
/// replaces 448, and q is rounded to the nearest integer, ties upwards.
QuantizedRows quantize_rows(const Expr& x, DType t = DType::E4M3);
/// The same for tensors [.., width] side by side: q is a concatenation whose parts are quantised one by one.
QuantizedRows quantize_rows(const std::vector<Expr>& parts, DType t = DType::E4M3);

}  // namespace tenon
