// A loss as a plan: it runs over a batch and adds gradients to those of the parameters.
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

/// A loss and its gradients by the names of the parameters, as expressions of one graph.
struct Differentiated {
  Expr loss;  ///< f32, rank 0
  std::vector<Result> gradients;
  std::vector<Result> results;  ///< what else may be read behind a run
  std::vector<Expr> forward;    ///< where the forward pass ends: below it values may be computed twice (rematerialise)
};

/// Gradients of `loss` for every parameter that it reads.
Differentiated differentiate(const Expr& loss);

/// What a step of networks in `type` multiplies in: bf16, which operands of gradients are rounded to too, or f32.
PrecisionPolicy training_precision(DType type);

struct GradientOptions {
  PrecisionPolicy precision = {};  ///< of the forward pass and of the gradients
  bool accumulates = false;        ///< runs behind the first of a step add to it; takes memory for the sums
  /// Layers that read the same rows become one product. Then an update packs what does not change again, with what
  /// does: the weights beside an adapter's A.
  bool merge_siblings = true;
  std::shared_ptr<Arena> arena = {};  ///< as Executable's; gradients lie there too
  int64_t arena_bytes = 0;            ///< most of the plan's arena, kept by computing values a second time; 0: no limit
};

/// What Gradients run on a target. Error(Memory) where arena_bytes are too few, with what is needed.
Plan plan_gradients(const Differentiated& d, const Target& target, const GradientOptions& options);

/// A differentiated loss made ready over parameters, which outlive it. Memory is known and taken when it is made.
class Gradients {
 public:
  /// Error(Memory), with what it needs. `made`: what plan_gradients gave of the same, where that has been asked.
  Gradients(Parameters& parameters, const Differentiated& d, const GradientOptions& options = {},
            std::optional<Plan> made = {});

  /// Inputs and numbers of the loss, by name.
  void set(const std::string& name, const HostView& value) { executable_->set(name, value); }
  /// f32 values, converted to the input's type.
  void set(const std::string& name, std::span<const float> values) { executable_->set(name, values); }
  void set_scalar(const std::string& name, double value) { executable_->set_scalar(name, value); }
  /// Runs it; the gradients are the parameters' if it is the `first` run of a step, else they are added. Where runs are
  /// not added up, gradients are among the plan's values: who has its arena next may write there. Returns the loss.
  /// Error(Numeric) names the launch that wrote the first number that is none, if the loss is not finite; then
  /// gradients mean nothing, and parameters are as they were.
  double run(bool first = true);
  /// Of the last run.
  std::vector<float> get(const std::string& result) const { return executable_->get(result); }
  const Plan& plan() const { return executable_->plan(); }
  MemoryPlan memory() const { return executable_->allocated(); }
  /// As Executable's: the launches of the runs that follow.
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
