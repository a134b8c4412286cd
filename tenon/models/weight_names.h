// Infers a network's dimensions from its weights, for checkpoints that come without a configuration.
#pragma once
#include <string>

#include "tenon/models/weights.h"

namespace tenon {

class WeightNames {
 public:
  /// In messages `where` names the file and `kind` the component ("a UNet").
  WeightNames(const WeightShapes& weights, std::string where, std::string kind)
      : weights_(weights), where_(std::move(where)), kind_(std::move(kind)) {}

  bool has(const std::string& name) const { return weights_.contains(name); }
  /// True if any name begins with `prefix`.
  bool has_prefix(const std::string& prefix) const;
  /// The tensor's shape; Error(Model) if it is missing or has another rank.
  Shape shape(const std::string& name, int rank) const;
  /// The number n such that prefix + i + suffix exists for every i < n; Error(Model) for n = 0.
  int64_t count(const std::string& prefix, const std::string& suffix) const;
  /// If `condition` holds, throws Error(Model): `name` shows that this is `found`, which is not supported.
  void refuse_if(bool condition, const std::string& name, const std::string& found) const;

 private:
  const WeightShapes& weights_;
  std::string where_, kind_;
};

}  // namespace tenon
