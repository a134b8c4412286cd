// A loss as a plan: it runs over a batch and adds to the gradients of the parameters.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/optim/list_update.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/executable.h"
#include "tenon/train/parameters.h"

namespace tenon::train {

/// A loss and its gradients by parameter name, as expressions of one graph.
struct Differentiated {
  Expr loss;  ///< f32, rank 0
  std::vector<Result> gradients;
  std::vector<Result> results;  ///< further values that may be read after a run
  std::vector<Expr> forward;    ///< end of the forward pass: values below it may be recomputed (rematerialise)
};

/// Gradients of `loss` with respect to every parameter that it reads. Error(Usage) if it is more than one number.
Differentiated differentiate(const Expr& loss);

/// Precision of products in a training step of type `type`: bf16, to which operands of gradients are rounded too, or
/// f32.
PrecisionPolicy training_precision(DType type);

struct GradientOptions {
  PrecisionPolicy precision = {};  ///< of the forward pass and of the gradients
  bool accumulates = false;        ///< runs after the first of a step add to it; needs memory for the sums
  /// Layers that read the same rows are merged into one product. An update then repacks unchanged weights along with
  /// changed ones, such as those beside an adapter's A.
  bool merge_siblings = true;
  std::shared_ptr<Arena> arena = {};  ///< as Executable's; gradients are in it too
  /// Most bytes of the plan's arena, reached by recomputing values; 0: no limit; kSmallestArena: as few as possible.
  int64_t arena_bytes = 0;
};

/// The plan that Gradients run on a target. Error(Memory) if arena_bytes is too small, naming the size needed.
Plan plan_gradients(const Differentiated& d, const Target& target, const GradientOptions& options);

/// A differentiated loss prepared over parameters, which must outlive it. All memory is allocated in the constructor.
class Gradients {
 public:
  /// Error(Memory) names the size needed. `made`: the result of plan_gradients for the same arguments, if at hand.
  Gradients(Parameters& parameters, const Differentiated& d, const GradientOptions& options = {},
            std::optional<Plan> made = {});

  /// Sets inputs and scalars of the loss, by name.
  void set(const std::string& name, const HostView& value) { executable_->set(name, value); }
  /// f32 values, converted to the input's type.
  void set(const std::string& name, std::span<const float> values) { executable_->set(name, values); }
  void set_scalar(const std::string& name, double value) { executable_->set_scalar(name, value); }
  /// Runs the loss and returns its value. Gradients replace those of the parameters if it is the `first` run of a step,
  /// else they are added. Without accumulation they are in the plan's arena, which another plan may overwrite. If the
  /// loss is not finite, Error(Numeric) names the launch that wrote the first non-finite number; gradients are then
  /// invalid, and parameters unchanged.
  double run(bool first = true);
  /// A result of the last run.
  std::vector<float> get(const std::string& result) const { return executable_->get(result); }
  const Plan& plan() const { return executable_->plan(); }
  MemoryPlan memory() const { return executable_->allocated(); }
  /// As Executable's: times the launches of later runs.
  void time_launches(bool on) { executable_->time_launches(on); }
  std::vector<LaunchTime> times() const { return executable_->times(); }

 private:
  void add_up(const std::vector<std::shared_ptr<void>>& fresh, bool first);

  Parameters& parameters_;
  bool accumulates_;
  std::unique_ptr<Executable> executable_;
  ListUpdate sum_;
  bool ran_ = false;
};

}  // namespace tenon::train
