#include "tenon/kernels/row_broadcast.h"

#include <algorithm>
#include <array>

#include "tenon/expr/ops.h"
#include "tenon/kernels/affine.h"

namespace tenon {

bool is_row_broadcast(const Expr& e) {
  return e.is<nodes::Broadcast>() && e->in[0]->family() == Family::Reduce && e->in[0]->in[0].shape() == e.shape();
}

Expr row_broadcast_below(Expr e) {
  while (e->family() == Family::View && !e.is<nodes::Concat>() && !is_row_broadcast(e)) e = e->in[0];
  return is_row_broadcast(e) ? e : Expr();
}

bool keeps_rows(const Expr& e, const Expr& broadcast) {
  const Expr& reduced = broadcast->in[0];
  if (e.shape() != broadcast.shape()) return false;
  Graph g;
  Memo memo{{reduced.get(), input(g, "row", reduced.dtype(), reduced.shape())}};
  const auto pieces = affine_pieces(rebuild(g, e, memo), e.shape(), e.shape().rank() - 1);
  if (!pieces || pieces->size() != 1 || pieces->front().offset != 0) return false;
  const AffinePiece& p = pieces->front();
  const int64_t count = reduced.shape().numel();
  return p.leaf && p.rows.size() == 1 && p.rows[0].extent == count && (p.rows[0].step == 1 || count == 1) &&
         std::ranges::all_of(p.cols, [](const Digit& d) { return d.step == 0; });
}

}  // namespace tenon
