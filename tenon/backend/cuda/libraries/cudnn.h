// cuDNN on a GPU.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "tenon/backend/cuda/libraries/cudnn_plan.h"
#include "tenon/backend/cuda/libraries/dnn_library.h"

namespace tenon::cuda {

/// "cudnn 9.19.0".
std::string cudnn_name(const CudnnApi& api);

/// Planned calls keep the library open. A problem is planned only once: compiling an attention engine takes half a
/// second.
class Cudnn : public DnnLibrary {
 public:
  /// Throws Error(Device) if the library fails to start.
  Cudnn(const std::shared_ptr<const CudnnApi>& api, MakeCurrent current);

  const std::string& name() const override { return name_; }
  std::vector<DnnPlan> likeliest(const DnnProblem& problem, size_t most) override;
  std::shared_ptr<LibraryCall> plan(const DnnProblem& problem, const std::string& engine) override;

  struct Session;

 private:
  std::shared_ptr<LibraryCall> prepared(const DnnProblem& problem, const CudnnConfig& config);

  std::shared_ptr<const Session> session_;
  std::string name_;
  std::map<std::string, std::shared_ptr<LibraryCall>> calls_;  ///< by problem and engine; guarded by the session
};

}  // namespace tenon::cuda
