// Where a layer finds its weights: a graph, the dotted prefix of the weights' names, and the model's element types.
// Layers are stateless functions of a Scope and a value.
#pragma once
#include <string>
#include <string_view>

#include "tenon/expr/expr.h"

namespace tenon::nn {

/// Element types of a model: what stored activations are rounded to, and what matrices are stored as. Biases, norm
/// weights and everything between two stored values are f32.
struct Precision {
  DType act = DType::BF16;
  DType weight = DType::BF16;
};
inline constexpr Precision kBf16{DType::BF16, DType::BF16};
inline constexpr Precision kF32{DType::F32, DType::F32};

class Scope {
 public:
  Scope(Graph& g, Precision p, std::string prefix = {}) : graph_(&g), precision_(p), prefix_(std::move(prefix)) {}

  /// The scope of a part: `scope / "conv1"` names its weights "<prefix>.conv1.<name>".
  Scope operator/(std::string_view part) const { return Scope(*graph_, precision_, path(part)); }
  Scope operator/(int64_t index) const { return *this / std::to_string(index); }

  /// A matrix, filter or table in the model's weight type; `shape` as in the checkpoint.
  Expr weight(std::string_view name, const Shape& shape) const {
    return param(*graph_, path(name), precision_.weight, shape);
  }
  /// A bias, norm weight or other small tensor, f32.
  Expr small(std::string_view name, const Shape& shape) const { return param(*graph_, path(name), DType::F32, shape); }

  Graph& graph() const { return *graph_; }
  const Precision& precision() const { return precision_; }
  DType act() const { return precision_.act; }

 private:
  std::string path(std::string_view part) const {
    return prefix_.empty() ? std::string(part) : prefix_ + "." + std::string(part);
  }

  Graph* graph_;
  Precision precision_;
  std::string prefix_;
};

}  // namespace tenon::nn
