// Which values of a launch are uniform: one number per row of its domain, which a kernel computes and keeps once.
#pragma once
#include <optional>
#include <unordered_map>
#include <vector>

#include "tenon/backend/affine.h"
#include "tenon/core/function_ref.h"

namespace tenon {

/// How a kernel gets the value of an expression in form: from the anchor, as a number, through a chain of views on
/// memory, or from the values of its operands.
enum class Origin { Accumulator, Literal, Memory, Computed };
Origin origin_of(const Expr& e);

/// True if a chain of views on memory is uniform. `pieces`: affine_pieces of the other arguments.
bool uniform_view(const Expr& view, const Shape& domain, int split,
                  const std::optional<std::vector<AffinePiece>>& pieces);

/// Which expressions in form are uniform.
class UniformValues {
 public:
  /// `loaded` answers for chains of views on memory.
  bool contains(const Expr& e, FunctionRef<bool(const Expr& view)> loaded);

 private:
  std::unordered_map<const Node*, bool> known_;
};

}  // namespace tenon
