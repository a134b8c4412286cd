// Whether cuDNN has plans for what a model's launches ask of it, for a GPU that need not be here.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "tenon/backend/cuda/dnn_library.h"
#include "tenon/backend/cuda/driver/cudnn_plan.h"

namespace tenon::cuda {

/// What became of one problem.
struct CudnnVerdict {
  std::string problem;  ///< described
  std::string engine;   ///< the likeliest, prepared; empty where there is none
  std::string why_not;  ///< then: what cuDNN says
};

/// Offers nothing: launches run on kernels of ours, which are what is compiled ahead of time.
class CudnnCheck : public DnnLibrary {
 public:
  /// Throws Error(Device) if there is no cuDNN, or it does not know the device.
  CudnnCheck(const SearchSettings& settings, const DeviceFacts& facts);

  const std::string& name() const override { return name_; }
  std::vector<DnnPlan> likeliest(const DnnProblem&, size_t) override { return {}; }
  std::shared_ptr<LibraryCall> plan(const DnnProblem&, const std::string&) override { return nullptr; }
  /// Plans it, if it is the first of its kind. An engine that cuDNN compiles is compiled for the GPU, not loaded.
  void announce(const DnnProblem& problem) override;

  /// In the order in which they came first.
  const std::vector<CudnnVerdict>& verdicts() const { return verdicts_; }

 private:
  std::shared_ptr<const CudnnApi> api_;
  CudnnPlanner planner_;
  std::string name_;
  bool compiles_;  ///< what its compiled engines want is here
  std::set<std::string> seen_;
  std::vector<CudnnVerdict> verdicts_;
};

}  // namespace tenon::cuda
