// What a network expects of a checkpoint: names and shapes, taken from the network's own graph, so that the list cannot
// differ from what is read.
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

/// Name and shape of every weight that the expressions read.
WeightShapes weights_of(std::span<const Expr> roots);
/// Elements of all tensors together.
int64_t parameter_count(const WeightShapes& weights);

/// How a checkpoint differs from what is expected.
struct WeightReport {
  struct WrongShape {
    std::string name;
    Shape expected, found;
  };
  std::vector<std::string> missing, unexpected;
  std::vector<WrongShape> wrong_shape;
  /// Those unexpected ones whose name goes on behind a weight's ("to_q.weight_scale"): the weight is quantised, and is
  /// another without them.
  std::vector<std::string> scales;
  /// All that the network needs is there; other unexpected names do no harm.
  bool usable() const { return missing.empty() && wrong_shape.empty() && scales.empty(); }
  /// In one line, the first `limit` differences of a kind by name; empty if there is none.
  std::string str(size_t limit = 3) const;
};

/// Compares names and shapes. Extents of 1 are not compared: a linear layer may be stored as a 1x1 convolution.
/// Position ids, which some checkpoints store, are not unexpected.
WeightReport check_weights(const WeightShapes& expected, const WeightShapes& found);
/// Throws Error(Model) at `where` (a file or component) that lists what is missing or of another shape.
void require_weights(const WeightReport& report, const std::string& where);
/// Throws Error(Model) at `where` for a tensor of `expected`, all of which are there, that holds no floating point.
void require_floats(const WeightShapes& expected, const std::map<std::string, TensorView>& tensors,
                    const std::string& where);

}  // namespace tenon
