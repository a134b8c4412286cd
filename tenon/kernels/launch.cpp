#include "tenon/kernels/launch.h"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

#include "tenon/core/error.h"
#include "tenon/expr/node_type.h"
#include "tenon/expr/state.h"

namespace tenon {

std::vector<Expr> nodes_of(const Launch& launch) {
  std::vector<Expr> roots;
  for (const Output& o : launch.outputs) roots.push_back(o.value);
  return topological(roots);
}

std::vector<Expr> operands_of(const Launch& launch) {
  std::vector<Expr> nodes = nodes_of(launch);
  std::erase_if(nodes, [](const Expr& e) { return !is_memory_leaf(e); });
  return nodes;
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

}  // namespace tenon
