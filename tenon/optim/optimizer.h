// Optimizers for training: f32 parameters with f32 gradients and moments, in a backend's memory; a step is one launch
// over the whole list. An optimizer is one file, which registers itself by name.
//
// Gradients are scaled as they are read, by the factor of clipping to a global norm, so that scaling needs no pass of
// its own. Numbers that depend on the step (a learning rate, bias corrections) are computed in double on the host and
// rounded to f32 once.
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

/// Most tensors that an optimizer keeps per parameter.
inline constexpr size_t kMaxMoments = 2;

/// One parameter: device addresses of contiguous f32, `count` elements each. No two overlap.
struct OptimizerTensor {
  void* param = nullptr;
  const void* grad = nullptr;
  std::array<void*, kMaxMoments> moments{};  ///< as many as Optimizer::moments, zero before the first step
  int64_t count = 0;
};

/// What changes from step to step.
struct OptimizerStep {
  double lr = 0;
  int64_t number = 1;     ///< of the step, from 1, for Adam's bias corrections
  double grad_scale = 1;  ///< gradients are multiplied by it first
};

/// What stays fixed. A value below 0 is the optimizer's own default.
struct OptimizerOptions {
  double beta1 = -1, beta2 = -1;  ///< of the moments, in [0, 1); SGD's momentum is beta1
  double eps = -1;                ///< Adam's
  double weight_decay = 0;        ///< decoupled (AdamW, Lion) or added to the gradient (SGD), as in PyTorch's classes
};

/// Throws Error(Usage) that names the option out of range.
void check_optimizer(const OptimizerOptions& options);

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Names of the tensors kept per parameter, as in PyTorch's state_dict.
  virtual std::span<const std::string> moments() const = 0;
  /// Enqueues one step of all tensors. Throws Error(Usage) for a number out of range, before anything is written.
  virtual void step(Stream& stream, std::span<const OptimizerTensor> tensors, const OptimizerStep& step) = 0;
};

using OptimizerFactory =
    std::function<std::unique_ptr<Optimizer>(std::shared_ptr<Backend> backend, const OptimizerOptions& options)>;
/// `static const RegisterOptimizer r("adamw", [](auto backend, const auto& options) {...});`
struct RegisterOptimizer {
  RegisterOptimizer(std::string name, OptimizerFactory factory);
};
std::vector<std::string> optimizer_names();
/// Throws Error(Usage) for an unknown name, listing all names, or for an option out of range.
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, std::shared_ptr<Backend> backend,
                                          const OptimizerOptions& options = {});

}  // namespace tenon
