// Reductions of rows that are repeated along them again, also behind views that split a row and join it.
#pragma once
#include "tenon/expr/expr.h"

namespace tenon {

/// True if `e` repeats a reduction along the rows that it reduced.
bool is_row_broadcast(const Expr& e);
/// What `e` shows through views if is_row_broadcast says so of that, or an empty Expr.
Expr row_broadcast_below(Expr e);
/// True if `e`, views over `broadcast`, is that same value: every row has its own number, all along it.
bool keeps_rows(const Expr& e, const Expr& broadcast);

}  // namespace tenon
