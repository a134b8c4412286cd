// Networks as plans: from an expression and options to what a backend runs.
#pragma once
#include <string>

#include "tenon/nn/scope.h"
#include "tenon/plan/plan.h"

namespace tenon {

/// Arithmetic and planning of a pipeline's networks.
struct NetworkOptions {
  nn::Precision precision = nn::kBf16;
  bool fusion = true;
  bool fold_scales = true, anchors_alone = false;  ///< as PlanOptions
  Target target = {};                              ///< of the backend that runs the plans
};

/// The plan `name` with the one result `result`.
Plan plan_one(const std::string& name, const std::string& result, const Expr& value, const NetworkOptions& options);

}  // namespace tenon
