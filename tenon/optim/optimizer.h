// Optimizers of training: f32 parameters with f32 gradients and moments, in a backend's memory, one launch a step over
// the whole list. An optimizer is one file, which registers itself by name.
//
// Gradients are scaled on the way in, by what clipping to a global norm leaves of them, so that no pass over them is
// spent on it. Numbers that depend on the step (a learning rate, bias corrections) are computed in double by the host
// and rounded to f32 once.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"

namespace tenon {

/// Most tensors that an optimizer keeps of a parameter beside the parameter.
inline constexpr size_t kMostMoments = 2;

/// One parameter: addresses of the device, contiguous f32 of `count` elements. No two overlap.
struct OptimizerTensor {
  void* param = nullptr;
  const void* grad = nullptr;
  std::array<void*, kMostMoments> moments{};  ///< Optimizer::moments of them, zeros before the first step
  int64_t count = 0;
};

/// What changes from step to step.
struct OptimizerStep {
  double lr = 0;
  int64_t number = 1;     ///< of the step, from 1: Adam's bias corrections read it
  double grad_scale = 1;  ///< gradients are multiplied by it first
};

/// What stays. A value below 0 is the optimizer's own default.
struct OptimizerOptions {
  double beta1 = -1, beta2 = -1;  ///< of the moments, in [0, 1); SGD's momentum is beta1
  double eps = -1;                ///< Adam's
  double weight_decay = 0;        ///< decoupled (AdamW, Lion), or added to the gradient (SGD), as PyTorch's classes do
};

/// Error(Usage) that names what is out of its range.
void check_optimizer(const OptimizerOptions& options);

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Names of the tensors that it keeps of each parameter, as PyTorch's state_dict calls them.
  virtual std::span<const std::string> moments() const = 0;
  /// Puts one step of all tensors on the stream. Error(Usage) for a number out of its range, before anything is
  /// written.
  virtual void step(Stream& stream, std::span<const OptimizerTensor> tensors, const OptimizerStep& step) = 0;
};

using OptimizerFactory =
    std::function<std::unique_ptr<Optimizer>(std::shared_ptr<Backend> backend, const OptimizerOptions& options)>;
/// `static const RegisterOptimizer r("adamw", [](auto backend, const auto& options) {...});`
struct RegisterOptimizer {
  RegisterOptimizer(std::string name, OptimizerFactory factory);
};
std::vector<std::string> optimizer_names();
/// Error(Usage) that lists the names, or names an option out of its range.
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, std::shared_ptr<Backend> backend,
                                          const OptimizerOptions& options = {});

}  // namespace tenon
