#include "tenon/kernels/launch.h"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

#include "tenon/core/error.h"
#include "tenon/expr/node_type.h"
#include "tenon/expr/precision.h"
#include "tenon/expr/state.h"
#include "tenon/kernels/form.h"

namespace tenon {

std::vector<Expr> nodes_of(const Launch& launch) {
  std::vector<Expr> roots;
  for (const Output& o : launch.outputs) roots.push_back(o.value);
  return topological(roots);
}

std::vector<Expr> operands_of(const Launch& launch) {
  std::vector<Expr> leaves;
  for (const Expr& e : nodes_of(launch))
    if (is_memory_leaf(e)) leaves.push_back(e);
  return leaves;
}

Expr anchor_of(const Launch& launch) {
  Expr anchor;
  for (const Expr& e : nodes_of(launch)) {
    if (e->family() != Family::Anchor || (anchor && is_companion(e, anchor))) continue;
    TENON_CHECK(Internal, !anchor || is_companion(anchor, e), launch.name)
        << "two anchors in one launch: " << anchor->name() << " and " << e->name();
    anchor = e;
  }
  return anchor;
}

bool is_companion(const Expr& e, const Expr& of) {
  return e->type->companion_of == of->name() && e->in == of->in && e->attrs == of->attrs;
}

int64_t bytes_of(const Shape& shape, DType dtype) { return shape.numel() * size_of(dtype); }

int64_t bytes_read(std::span<const Expr> values, const std::function<bool(const Expr&)>& in_memory) {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  std::vector<std::pair<Expr, int64_t>> stack;  // the most elements that the reader uses
  std::set<std::pair<const Node*, int64_t>> seen;
  std::unordered_map<const Node*, int64_t> elements;
  for (const Expr& v : values)
    for (const Expr& x : needed_for(v)) stack.emplace_back(x, kAll);
  while (!stack.empty()) {
    const auto [e, most] = stack.back();
    stack.pop_back();
    const int64_t all = e.shape().numel();
    if (in_memory(e) || is_update(e)) {  // a reader of an update reads memory
      int64_t& read = elements[e.get()];
      read = std::min(all, read + std::min(all, most));
    } else if (const int64_t taken = e->family() == Family::View ? std::min(all, most) : kAll;
               seen.emplace(e.get(), taken).second) {
      for (const Expr& x : e->in) stack.emplace_back(x, taken);
    }
  }
  int64_t bytes = 0;
  for (const auto& [node, count] : elements) bytes += count * size_of(Expr(node).dtype());
  return bytes;
}

int64_t bytes_moved(const Launch& launch) {
  const Expr anchor = anchor_of(launch);
  int64_t bytes = 0;
  // Operands of the anchor that backends store in its arithmetic type.
  std::set<const Node*> kept;
  if (anchor && arithmetic_of(anchor))
    for (const Expr& x : std::span(anchor->in).first(static_cast<size_t>(anchor->type->factors))) {
      const int64_t saved = size_of(x.dtype()) - size_of(*arithmetic_of(anchor));
      if (saved >= 0 && of_weights_only(x) && kept.insert(x.get()).second) bytes -= x.shape().numel() * saved;
    }
  std::vector<Expr> values;
  for (const Output& o : launch.outputs) {
    bytes += bytes_of(written_by(o.value).shape(), o.value.dtype());
    values.push_back(o.value);
  }
  return bytes + bytes_read(values, [&](const Expr& e) { return is_memory_leaf(e) || kept.contains(e.get()); });
}

}  // namespace tenon
