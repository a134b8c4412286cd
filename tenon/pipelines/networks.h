// Networks as plans: from an expression and options to what a backend runs.
#pragma once
#include <optional>
#include <string>

#include "tenon/nn/scope.h"
#include "tenon/nn/side_branch.h"
#include "tenon/plan/plan.h"

namespace tenon {

/// Arithmetic and planning of a pipeline's networks.
struct NetworkOptions {
  nn::Precision precision = nn::kBf16;
  bool e4m3_rows = false;      ///< linear layers that bear it in quantised rows, by the network's own policy
  nn::SideBranches side = {};  ///< of LoRAs, multiplied in the model's type whatever the policy says
  bool fusion = true;
  bool fold_scales = true, anchors_alone = false;  ///< as PlanOptions
  Target target = {};                              ///< of the backend that runs the plans
};

/// The plan `name` with the one result `result`. `e4m3`: what NetworkOptions::e4m3_rows means for it; Error(Usage) if
/// it is asked of a network that has no such policy.
Plan plan_one(const std::string& name, const std::string& result, const Expr& value, const NetworkOptions& options,
              const std::optional<PrecisionPolicy>& e4m3 = {});

}  // namespace tenon
