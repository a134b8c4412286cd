// Defines the meaning of every expression: naive fp64 evaluation, node by node. Rounds only at leaves (which hold
// stored values) and at the expression's own casts and rounding points. Every kernel is tested against it.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tenon/core/host_tensor.h"
#include "tenon/expr/expr.h"

namespace tenon {

/// Evaluates expressions over given leaf values. Caches small results and requested ones; drops large temporaries after
/// their last use. Handles stay valid as long as their graphs live.
class Oracle {
 public:
  using Leaves = std::function<std::vector<double>(const Expr& leaf)>;

  /// `leaves` returns the elements of an input, param, scalar or state, in row-major order.
  explicit Oracle(Leaves leaves) : leaves_(std::move(leaves)) {}
  /// Leaves by name; a leaf that is missing, or has another shape, throws Error(Usage) that names it.
  explicit Oracle(std::map<std::string, HostTensor> leaves);

  /// The elements of `e`, in row-major order.
  std::vector<double> eval(const Expr& e);

 private:
  using Values = std::shared_ptr<const std::vector<double>>;
  Values compute(const Expr& e);
  std::vector<double> node_values(const Expr& e);
  std::vector<double> leaf_values(const Expr& e) const;

  Leaves leaves_;
  std::unordered_map<const Node*, Values> known_;
};

}  // namespace tenon
