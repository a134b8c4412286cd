// Whether cuDNN has plans for what a model's launches ask of it, for a GPU that need not be here.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "tenon/backend/cuda/libraries/cudnn_plan.h"
#include "tenon/backend/cuda/libraries/dnn_library.h"

namespace tenon::cuda {

/// What became of one problem.
struct CudnnVerdict {
  std::string problem;  ///< described
  std::string engine;   ///< the likeliest, prepared; empty where there is none
  std::string why_not;  ///< then: what cuDNN says
};

class CudnnCheck {
 public:
  /// Throws Error(Device) if there is no cuDNN, or it does not know the device.
  CudnnCheck(const SearchSettings& settings, const DeviceFacts& facts);

  /// "cudnn 9.19.0".
  const std::string& name() const { return name_; }
  /// Plans it, if it is the first of its kind. An engine that cuDNN compiles is compiled for the GPU, not loaded.
  void plan(const DnnProblem& problem);

  /// In the order in which they came first.
  const std::vector<CudnnVerdict>& verdicts() const { return verdicts_; }
  /// That planning took.
  double seconds() const { return seconds_; }

 private:
  std::shared_ptr<const CudnnApi> api_;
  CudnnPlanner planner_;
  std::string name_;
  bool compiles_;  ///< what its compiled engines want is here
  std::set<std::string> seen_;
  std::vector<CudnnVerdict> verdicts_;
  double seconds_ = 0;
};

}  // namespace tenon::cuda
