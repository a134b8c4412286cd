// Where a model's tensors come from.
#pragma once
#include <map>
#include <string>
#include <utility>

#include "tenon/core/dtype.h"
#include "tenon/core/shape.h"

namespace tenon {

/// A tensor in host memory owned by someone else. Data may have any alignment.
struct HostView {
  DType dtype = DType::F32;
  Shape shape;
  const void* data = nullptr;
};

/// A model's tensors by name. `find` throws Error(Model) for an unknown name. `done` says that nothing is being made
/// from the tensor any more: its memory may be released until the tensor is requested again.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual HostView find(const std::string& name) const = 0;
  virtual void done(const std::string&) const {}
};

/// Tensors that the caller holds in host memory, which must outlive the preparation of the executables that read them.
class HostWeights : public WeightSource {
 public:
  HostWeights() = default;
  explicit HostWeights(std::map<std::string, HostView> tensors) : tensors_(std::move(tensors)) {}
  void add(const std::string& name, const HostView& tensor) { tensors_[name] = tensor; }
  HostView find(const std::string& name) const override;

 private:
  std::map<std::string, HostView> tensors_;
};

}  // namespace tenon
