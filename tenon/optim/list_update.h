// An expression over a list of tensors, as an optimizer needs it; prepared on a backend when first run.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/backend/kernel.h"
#include "tenon/expr/expr.h"
#include "tenon/kernels/launch.h"
#include "tenon/optim/optimizer.h"

namespace tenon {

/// A vector of any length, f32: an operand of a list launch.
Expr list_vector(Graph& g, const char* name);

class ListUpdate {
 public:
  /// `make` builds the launch: vectors by name, numbers as scalars; an output has the name of the vector it replaces.
  ListUpdate(std::shared_ptr<Backend> backend, std::function<Launch(Graph&)> make)
      : backend_(std::move(backend)), make_(std::move(make)) {}

  /// Runs it over items 0..count-1: `vector` returns item i's memory by the vector's name, `length` its length,
  /// `number` the value of a scalar, in double.
  void run(Stream& stream, size_t count, const std::function<int64_t(size_t)>& length,
           const std::function<void*(size_t, const std::string&)>& vector,
           const std::function<double(const std::string&)>& number);
  /// run() over an optimizer's tensors: "param", "grad", and the moments by name.
  void run(Stream& stream, std::span<const OptimizerTensor> tensors, std::span<const std::string> moments,
           const std::function<double(const std::string&)>& number);

 private:
  std::shared_ptr<Backend> backend_;
  std::function<Launch(Graph&)> make_;
  Graph graph_;
  Launch launch_;
  std::unique_ptr<ListKernel> kernel_;
  std::vector<ListItem> items_;
};

/// Throws Error(Usage) for a learning rate, step number or scale out of range, or a missing address.
void check_step(const OptimizerStep& step, std::span<const OptimizerTensor> tensors, size_t moments);

}  // namespace tenon
