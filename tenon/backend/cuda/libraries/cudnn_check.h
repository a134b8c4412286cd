// Checks whether cuDNN has plans for the problems of a model's launches, for a GPU that need not be present.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "tenon/backend/cuda/libraries/cudnn_plan.h"
#include "tenon/backend/cuda/libraries/dnn_library.h"

namespace tenon::cuda {

/// The outcome for one problem.
struct CudnnVerdict {
  std::string problem;  ///< its description
  std::string engine;   ///< the one that cuDNN ranks first, prepared; empty if there is none
  std::string why_not;  ///< cuDNN's reason if there is none
};

class CudnnCheck {
 public:
  /// Throws Error(Device) if there is no cuDNN, or if it rejects the device.
  CudnnCheck(const SearchSettings& settings, const DeviceFacts& facts);

  /// "cudnn 9.19.0".
  const std::string& name() const { return name_; }
  /// Plans the problem, if not planned before. An engine that cuDNN compiles is compiled for the GPU but not loaded.
  void plan(const DnnProblem& problem);

  /// In order of first occurrence.
  const std::vector<CudnnVerdict>& verdicts() const { return verdicts_; }
  /// Time that planning took.
  double seconds() const { return seconds_; }

 private:
  std::shared_ptr<const CudnnApi> api_;
  CudnnPlanner planner_;
  std::string name_;
  bool compiles_;  ///< its compiled engines have what they need here
  std::set<std::string> seen_;
  std::vector<CudnnVerdict> verdicts_;
  double seconds_ = 0;
};

}  // namespace tenon::cuda
