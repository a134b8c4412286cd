// What we ask cuDNN to compute, as graphs of its operations, and the descriptors they consist of.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "tenon/backend/cuda/libraries/cudnn_api.h"
#include "tenon/backend/cuda/libraries/dnn_library.h"

namespace tenon::cuda {

/// Owns a cuDNN descriptor.
class CudnnDescriptor {
 public:
  CudnnDescriptor(std::shared_ptr<const CudnnApi> api, CudnnKind kind);
  ~CudnnDescriptor();
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  CudnnObject get() const { return object_; }
  /// Each returns *this. Throws Error(Device) that names the attribute's number.
  CudnnDescriptor& set(CudnnAttribute attribute, CudnnType type, int64_t count, const void* elements);
  CudnnDescriptor& set(CudnnAttribute attribute, int64_t value);
  CudnnDescriptor& set(CudnnAttribute attribute, std::span<const int64_t> values);
  CudnnDescriptor& set(CudnnAttribute attribute, bool value);
  CudnnDescriptor& set(CudnnAttribute attribute, CudnnDataType value);
  CudnnDescriptor& set(CudnnAttribute attribute, const CudnnDescriptor& value);
  CudnnDescriptor& set(CudnnAttribute attribute, std::span<const CudnnObject> values);
  /// Throws Error(Device) if cuDNN cannot do what was described.
  CudnnDescriptor& finalize();
  CudnnStatus try_finalize() { return api_->finalize(object_); }

 private:
  std::shared_ptr<const CudnnApi> api_;
  CudnnKind kind_;
  CudnnObject object_ = nullptr;
};

/// The operations of a problem. Its tensors have the ids 1, 2, .. in the order of a call's addresses.
class CudnnGraph {
 public:
  CudnnGraph(std::shared_ptr<const CudnnApi> api, const DnnProblem& problem);

  const std::shared_ptr<const CudnnApi>& api() const { return api_; }
  int tensors() const { return tensors_; }
  /// Numbers passed by value with the tensors; their ids follow the tensors'.
  const std::vector<float>& scalars() const { return scalars_; }
  std::span<const CudnnObject> operations() const { return operations_; }

 private:
  using Dims = std::array<int64_t, 4>;
  void describe(const DnnConv& conv);
  void describe(const DnnAttention& attention);
  CudnnDescriptor& make(CudnnKind kind);
  CudnnDescriptor& make_tensor(CudnnDataType type, const Dims& dims, const Dims& strides);
  const CudnnDescriptor& tensor(DType type, const Dims& dims, const Dims& strides);
  const CudnnDescriptor& scalar(float value);
  void add_bias(const CudnnDescriptor& sum, const CudnnDescriptor& bias, const CudnnDescriptor& y);

  std::shared_ptr<const CudnnApi> api_;
  std::vector<std::unique_ptr<CudnnDescriptor>> descriptors_;
  std::vector<CudnnObject> operations_;
  std::vector<float> scalars_;
  int tensors_ = 0;
  int64_t next_id_ = 1;
};

}  // namespace tenon::cuda
