// Expressions as held by Python, together with the graph that owns them.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "apps/python/array.h"
#include "tenon/core/error.h"
#include "tenon/expr/expr.h"

namespace tenon::python {

struct Value {
  Expr expr;
  std::shared_ptr<Graph> graph;

  /// This expression, as an operand next to `other`. Error(Usage) if it was traced for another function.
  Expr of(const Value& other) const {
    TENON_CHECK(Usage, graph == other.graph, "expression") << "belongs to another call of fuse";
    return expr;
  }
};

/// Makes the node of this name. Pointwise operands are broadcast. Error(Usage) for wrong operands or attributes.
Expr make_node(std::string_view name, std::span<const Expr> in, const Attrs& attrs);

/// A strided array as views of a leaf `name` over the same memory: axes are sorted by stride, gaps become slices, and a
/// stride of 0 becomes a broadcast. The leaf starts at leaf_address(array). Error(Usage) for strides that cannot be
/// expressed so (overlapping windows, negative strides). Functions are traced over dense inputs, which a Program
/// replaces by these views: a gradient by a view would miss readers of what the view reads, because a reshape of a
/// reshape reads the latter's operand.
Expr input_like(Graph& g, const std::string& name, const Array& array);
/// Start of the leaf of `array`: on a GPU the last multiple of 16 bytes at or before its first element.
void* leaf_address(const Array& array);

}  // namespace tenon::python
