#include "tenon/kernels/launch.h"

#include <set>

#include "tenon/core/error.h"
#include "tenon/expr/node_type.h"

namespace tenon {
namespace {
std::vector<Expr> nodes_of(const Launch& launch) {
  std::vector<Expr> roots;
  for (const Output& o : launch.outputs) roots.push_back(o.value);
  return topological(roots);
}
}  // namespace

std::vector<Expr> operands_of(const Launch& launch) {
  std::vector<Expr> leaves;
  for (const Expr& e : nodes_of(launch))
    if (is_memory_leaf(e)) leaves.push_back(e);
  return leaves;
}

Expr anchor_of(const Launch& launch) {
  Expr anchor;
  for (const Expr& e : nodes_of(launch)) {
    if (e->family() != Family::Anchor) continue;
    TENON_CHECK(Internal, !anchor, launch.name)
        << "two anchors in one launch: " << anchor->name() << " and " << e->name();
    anchor = e;
  }
  return anchor;
}

int64_t bytes_of(const Shape& shape, DType dtype) { return shape.numel() * size_of(dtype); }

int64_t bytes_moved(const Launch& launch) {
  int64_t bytes = 0;
  for (const Expr& e : operands_of(launch)) bytes += bytes_of(e.shape(), e.dtype());
  for (const Output& o : launch.outputs) bytes += bytes_of(o.value.shape(), o.value.dtype());
  return bytes;
}

}  // namespace tenon
