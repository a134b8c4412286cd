// Values that a weight source computes for a tensor.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>

#include "tenon/core/shape.h"

namespace tenon {

/// Keeps a tensor's computed values until they are packed. For one thread at a time, like a WeightSource.
class MadeNumbers {
 public:
  /// The values of `name`, all written by make(std::span<float>) if absent. The pointer is valid until they are
  /// dropped.
  template <class Make>
  const float* get(const std::string& name, const Shape& shape, const Make& make) const {
    std::unique_ptr<float[]>& kept = made_[name];
    if (!kept) {
      const auto count = static_cast<size_t>(shape.numel());
      auto numbers = std::make_unique_for_overwrite<float[]>(count);
      make(std::span<float>(numbers.get(), count));
      kept = std::move(numbers);
    }
    return kept.get();
  }
  void drop(const std::string& name) const { made_.erase(name); }

 private:
  mutable std::map<std::string, std::unique_ptr<float[]>> made_;
};

}  // namespace tenon
