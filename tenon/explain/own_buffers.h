// Separate memory for a plan's buffers, for checks that read every value after the run.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/plan/plan.h"

namespace tenon {

/// Separate memory for every buffer of a plan, instead of the arena, which reuses memory: an Executable bound to all()
/// still holds each value after its run. Filled with NaN, to expose reads of unwritten memory; states are zero, as they
/// begin.
class OwnBuffers {
 public:
  /// Throws whatever Backend::allocate throws.
  OwnBuffers(const Plan& plan, Backend& backend);
  /// By name, for all buffers of the plan but those that a WeightStore keeps.
  const std::map<std::string, void*>& all() const { return bound_; }

 private:
  std::vector<std::shared_ptr<void>> memory_;
  std::map<std::string, void*> bound_;
};

}  // namespace tenon
