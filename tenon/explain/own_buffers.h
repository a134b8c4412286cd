// A plan's buffers in memory of their own, for checks that read every value when the run is over.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/plan/plan.h"

namespace tenon {

/// Memory for every buffer of a plan apart from the arena, which shares it: an Executable bound to all() still holds
/// each value after its run. Filled with NaN, so that reading what nobody wrote shows; states with zeros, as they
/// begin.
class OwnBuffers {
 public:
  /// Throws what Backend::allocate throws.
  OwnBuffers(const Plan& plan, Backend& backend);
  /// By name, of the whole plan but for buffers that a WeightStore keeps.
  const std::map<std::string, void*>& all() const { return bound_; }

 private:
  std::vector<std::shared_ptr<void>> memory_;
  std::map<std::string, void*> bound_;
};

}  // namespace tenon
