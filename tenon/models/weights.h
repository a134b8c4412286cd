// What a network expects of a checkpoint: names and shapes, collected from the network's own graph so that the list
// always matches what is read.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tenon/expr/expr.h"
#include "tenon/io/safetensors.h"

namespace tenon {

/// Tensor names and their shapes, in bytewise order of the names.
using WeightShapes = std::map<std::string, Shape>;

/// Name and shape of every weight that these expressions read.
WeightShapes weights_of(std::span<const Expr> roots);
/// Number of elements of all tensors together.
int64_t parameter_count(const WeightShapes& weights);

/// Differences between a checkpoint and what a network expects.
struct WeightReport {
  struct WrongShape {
    std::string name;
    Shape expected, found;
  };
  std::vector<std::string> missing, unexpected;
  std::vector<WrongShape> wrong_shape;
  /// Unexpected tensors that by their names scale a weight ("to_q.weight_scale", "to_q.scale_weight"): that weight is
  /// quantised, and is wrong without them.
  std::vector<std::string> scales;
  /// True if the network has all that it needs; other unexpected tensors are harmless.
  bool usable() const { return missing.empty() && wrong_shape.empty() && scales.empty(); }
  /// All in one line, naming the first `limit` differences of each kind; empty if there are none.
  std::string str(size_t limit = 3) const;
};

/// Compares names and shapes, ignoring extents of 1: a linear layer may be stored as a 1x1 convolution. Position ids,
/// which some checkpoints store, are not reported as unexpected.
WeightReport check_weights(const WeightShapes& expected, const WeightShapes& found);
/// Throws Error(Model) at `where` (a file or component) that lists missing tensors and wrong shapes.
void require_weights(const WeightReport& report, const std::string& where);
/// Throws Error(Model) at `where` if a tensor of `expected` is not floating point. All of them must exist.
void require_floats(const WeightShapes& expected, const std::map<std::string, TensorView>& tensors,
                    const std::string& where);

}  // namespace tenon
