// Values that a weight source computes for a tensor.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tenon/core/shape.h"

namespace tenon {

/// Keeps a tensor's computed values until they are packed. For one thread at a time, like a WeightSource.
class MadeNumbers {
 public:
  /// The values of `name`, computed by make(std::span<float>) if absent. The pointer is valid until they are dropped.
  template <class Make>
  const float* get(const std::string& name, const Shape& shape, const Make& make) const {
    std::vector<float>& data = made_[name];
    if (data.empty() && shape.numel() > 0) {
      data.resize(static_cast<size_t>(shape.numel()));
      make(std::span<float>(data));
    }
    return data.data();
  }
  void drop(const std::string& name) const { made_.erase(name); }

 private:
  mutable std::map<std::string, std::vector<float>> made_;
};

}  // namespace tenon
