#include "tenon/kernels/row_broadcast.h"

#include "tenon/expr/ops.h"
#include "tenon/kernels/affine.h"
#include "tenon/kernels/view_facts.h"

namespace tenon {

bool is_row_broadcast(const Expr& e) {
  return e.is<nodes::Broadcast>() && e->in[0]->family() == Family::Reduce && e->in[0]->in[0].shape() == e.shape();
}

Expr row_broadcast_below(Expr e) {
  while (e->family() == Family::View && !is_row_broadcast(e) && !(e->in.size() > 1 && view_facts(e).joins))
    e = e->in[0];
  return is_row_broadcast(e) ? e : Expr();
}

bool keeps_rows(const Expr& e, const Expr& broadcast) {
  const Expr& reduced = broadcast->in[0];
  if (e.shape() != broadcast.shape()) return false;
  Graph g;
  Memo memo{{reduced.get(), input(g, "row", reduced.dtype(), reduced.shape())}};
  const Shape& domain = e.shape();
  const auto pieces = [&](const Expr& x) { return affine_pieces(rebuild(g, x, memo), domain, domain.rank() - 1); };
  const auto as_it_was = pieces(broadcast);
  return as_it_was && pieces(e) == as_it_was;
}

}  // namespace tenon
