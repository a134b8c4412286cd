// What the operands of anchors are multiplied in, and rows as e4m3 or i8 numbers with a scale.
#pragma once
#include <optional>

#include "tenon/expr/expr.h"

namespace tenon {

/// True if every value of element type `t` is one of `arithmetic` too, so that multiplying in it rounds no operand: the
/// type itself, e4m3 and i8 in f16 and bf16, everything in f32.
bool holds(DType arithmetic, DType t);

/// The element type that the anchor's operands are multiplied in (sums are f32): an attribute of the node. Empty as
/// long as nobody has said; planning settles it (plan/precision.h).
std::optional<DType> arithmetic_of(const Expr& anchor);
/// The same anchor, multiplied in `arithmetic`. Throws Error(Usage) if an operand has values that it does not hold.
Expr multiplied_in(const Expr& anchor, DType arithmetic);
/// The same anchor, its attributes too, over other operands.
Expr with_operands(const Expr& anchor, std::initializer_list<Expr> in);

/// Rows as e4m3 or i8 with a scale each: x is about q * scale.
struct QuantizedRows {
  Expr q;      ///< x's shape
  Expr scale;  ///< f32, x's shape with a last axis of 1
};

/// scale = max(absmax of the row, 1e-12) / 448; q = x / scale, rounded to nearest even, at most 448. So a row of zeros
/// gives zeros. A NaN makes its whole row NaN, and an infinity its row's scale infinite. In i8: / 127, to the nearest
/// whole number, ties upwards.
QuantizedRows quantize_rows(const Expr& x, DType t = DType::E4M3);
/// The same of tensors [.., width] side by side: q is their concatenation, each of its parts rounded where it is.
QuantizedRows quantize_rows(const std::vector<Expr>& parts, DType t = DType::E4M3);

}  // namespace tenon
