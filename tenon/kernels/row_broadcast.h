// Row reductions broadcast back over their rows, also under views that split a row and rejoin it.
#pragma once
#include "tenon/expr/expr.h"

namespace tenon {

/// True if `e` broadcasts a row reduction back over the rows that it reduced.
bool is_row_broadcast(const Expr& e);
/// The first node below the views of `e` for which is_row_broadcast holds, or an empty Expr.
Expr row_broadcast_below(Expr e);
/// True if `e`, views over `broadcast`, is known to have the same value: each row is constant and has its own number.
bool keeps_rows(const Expr& e, const Expr& broadcast);

}  // namespace tenon
