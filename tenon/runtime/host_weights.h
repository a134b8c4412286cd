// Weights that the caller holds in host memory.
#pragma once
#include <map>
#include <string>

#include "tenon/backend/backend.h"
#include "tenon/core/error.h"

namespace tenon {

/// A WeightSource over the caller's tensors, which must outlive the preparation of the executables that read them.
class HostWeights : public WeightSource {
 public:
  HostWeights() = default;
  explicit HostWeights(std::map<std::string, HostView> tensors) : tensors_(std::move(tensors)) {}
  void add(const std::string& name, const HostView& tensor) { tensors_[name] = tensor; }
  HostView find(const std::string& name) const override {
    const auto it = tensors_.find(name);
    TENON_CHECK(Model, it != tensors_.end(), "weights") << "no tensor '" << name << "'";
    TENON_CHECK(Model, it->second.data || !it->second.shape.numel(), name) << "weight has no address";
    return it->second;
  }

 private:
  std::map<std::string, HostView> tensors_;
};

}  // namespace tenon
