// cuDNN's plans: a problem, an engine with the knob settings that the heuristics prefer, and its workspace. Only
// engines that give the same bits in every run, by sums of products and no other algorithm (Winograd, Fourier).
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/libraries/cudnn_graph.h"

namespace tenon::cuda {

/// A way to solve a problem, not yet prepared. Owns what it consists of.
struct CudnnConfig {
  std::string engine;     ///< "engine 62 knobs 2:16 27:2": identifies it within one version of cuDNN
  bool compiles = false;  ///< when prepared: takes about half a second, and needs a driver
  std::shared_ptr<const CudnnGraph> graph;
  std::vector<std::shared_ptr<const CudnnDescriptor>> made_of;  ///< the engine's configuration comes last
};

/// A plan that can be executed.
class CudnnPlan {
 public:
  /// Prepares it. Throws Error(Device), except if an engine was compiled and only loading it, which needs a GPU,
  /// failed: then loaded() is false.
  explicit CudnnPlan(CudnnConfig config);

  const std::string& engine() const { return config_.engine; }
  bool loaded() const { return loaded_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// `addresses`: of the graph's tensors. Runs on the handle's stream.
  void execute(CudnnHandle handle, std::span<void* const> addresses, void* workspace) const;

 private:
  CudnnConfig config_;
  std::shared_ptr<CudnnDescriptor> plan_;
  bool loaded_ = true;
  int64_t workspace_bytes_ = 0;
};

/// Plans for this device, or for one that is only described.
class CudnnPlanner {
 public:
  CudnnPlanner(std::shared_ptr<const CudnnApi> api, CudnnHandle handle);
  /// Without a GPU, for devices like the one described. Throws Error(Device) if cuDNN rejects the description.
  CudnnPlanner(std::shared_ptr<const CudnnApi> api, const DeviceFacts& facts);

  /// Configurations, the heuristics' favourite first; none if cuDNN does not support the problem. Throws Error(Device)
  /// with the reason if the problem cannot even be described.
  std::vector<CudnnConfig> configs(const DnnProblem& problem) const;

 private:
  std::shared_ptr<const CudnnApi> api_;
  CudnnHandle handle_ = nullptr;
  std::shared_ptr<const CudnnDescriptor> properties_;
};

}  // namespace tenon::cuda
