// Checks whether cuDNN has plans for the problems of a model's launches, for a GPU that need not be present.
#pragma once
#include <set>
#include <string>

#include "tenon/backend/cuda/libraries/cudnn_plan.h"
#include "tenon/backend/cuda/libraries/dnn_library.h"
#include "tenon/backend/offline_compiler.h"

namespace tenon::cuda {

class CudnnCheck {
 public:
  /// Throws Error(Device) if there is no cuDNN, or if it rejects the device.
  CudnnCheck(const SearchSettings& settings, const DeviceFacts& facts);

  /// Plans the problem, if not planned before. An engine that cuDNN compiles is compiled for the GPU but not loaded.
  void plan(const DnnProblem& problem);

  /// The problems so far, in order of first occurrence, each with the engine that cuDNN ranks first, prepared.
  const PlannedCalls& planned() const { return planned_; }

 private:
  std::shared_ptr<const CudnnApi> api_;
  CudnnPlanner planner_;
  bool compiles_;  ///< its compiled engines have what they need here
  std::set<std::string> seen_;
  PlannedCalls planned_;
};

}  // namespace tenon::cuda
