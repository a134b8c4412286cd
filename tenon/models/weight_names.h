// Reading a network's dimensions off its weights, for checkpoints that come without a configuration.
#pragma once
#include <string>

#include "tenon/models/weights.h"

namespace tenon {

class WeightNames {
 public:
  /// `where` names the file and `kind` the component ("a UNet") in messages.
  WeightNames(const WeightShapes& weights, std::string where, std::string kind)
      : weights_(weights), where_(std::move(where)), kind_(std::move(kind)) {}

  bool has(const std::string& name) const { return weights_.contains(name); }
  /// True if any name begins with `prefix`.
  bool has_prefix(const std::string& prefix) const;
  /// The tensor's shape; Error(Model) if it is missing or of another rank.
  Shape shape(const std::string& name, int rank) const;
  /// The n for which prefix + i + suffix is there for every i < n; Error(Model) for n = 0.
  int64_t count(const std::string& prefix, const std::string& suffix) const;
  /// Throws Error(Model): `name` shows that this is `found`, which is not supported.
  void refuse_if(bool condition, const std::string& name, const std::string& found) const;

 private:
  const WeightShapes& weights_;
  std::string where_, kind_;
};

}  // namespace tenon
