// Numbers that a source of weights makes of a tensor.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tenon/core/shape.h"

namespace tenon {

/// Keeps what was made of a tensor until it is packed. One thread at a time, as a WeightSource.
class MadeNumbers {
 public:
  /// The numbers of `name`, filled in by make(std::span<float>) if they are not there. They stay where they are until
  /// they are dropped.
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
