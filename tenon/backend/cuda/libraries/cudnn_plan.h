// cuDNN's plans: a problem, an engine with its knobs that the heuristics prefer, and the memory it works in. Only
// engines that give the same bits run after run, by sums of products and no other algorithm (Winograd, Fourier).
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/libraries/cudnn_graph.h"

namespace tenon::cuda {

/// How a problem may be done, not yet prepared. Keeps what it was made of.
struct CudnnConfig {
  std::string engine;     ///< "engine 62 knobs 2:16 27:2": equal for equal ones of a version of cuDNN
  bool compiles = false;  ///< when it is prepared: about half a second, and a driver is wanted
  std::shared_ptr<const CudnnGraph> graph;
  std::vector<std::shared_ptr<const CudnnDescriptor>> made_of;  ///< the engine's configuration last
};

/// Something that can be executed.
class CudnnPlan {
 public:
  /// Prepares it. Throws Error(Device); but where an engine was compiled and only its loading failed, for which a GPU
  /// is needed, loaded() is false.
  explicit CudnnPlan(CudnnConfig config);

  const std::string& engine() const { return config_.engine; }
  bool loaded() const { return loaded_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// `addresses` of the graph's tensors. Goes to the handle's stream.
  void execute(CudnnHandle handle, std::span<void* const> addresses, void* workspace) const;

 private:
  CudnnConfig config_;
  std::shared_ptr<CudnnDescriptor> plan_;
  bool loaded_ = true;
  int64_t workspace_bytes_ = 0;
};

/// Plans for a device: this one, or one that is described and need not be here.
class CudnnPlanner {
 public:
  CudnnPlanner(std::shared_ptr<const CudnnApi> api, CudnnHandle handle);
  /// Without a GPU, for devices like the one named. Error(Device) if cuDNN does not take the description.
  CudnnPlanner(std::shared_ptr<const CudnnApi> api, const DeviceFacts& facts);

  /// The likeliest first; none for a problem that cuDNN does not do. Throws Error(Device) that says why it cannot even
  /// be described.
  std::vector<CudnnConfig> configs(const DnnProblem& problem) const;

 private:
  std::shared_ptr<const CudnnApi> api_;
  CudnnHandle handle_ = nullptr;
  std::shared_ptr<const CudnnDescriptor> properties_;
};

}  // namespace tenon::cuda
