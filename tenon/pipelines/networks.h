// Networks as plans: from an expression and options to what a backend runs.
#pragma once
#include <optional>
#include <string>

#include "tenon/nn/low_rank.h"
#include "tenon/nn/scope.h"
#include "tenon/plan/plan.h"

namespace tenon {

/// Arithmetic and planning of a pipeline's networks.
struct NetworkOptions {
  nn::Precision precision = nn::kBf16;
  bool e4m3_rows = false;      ///< linear layers that bear it in quantised rows, by the network's own policy
  bool i8_weights = false;     ///< linear layers in i8, in blocks or of rows of weights; for language models
  nn::SideBranches side = {};  ///< of LoRAs, multiplied in the model's type whatever the policy says
  bool fusion = true;
  bool fold_scales = true, anchors_alone = false;  ///< as PlanOptions
  Target target = {};                              ///< of the backend that runs the plans
};

/// How a network's linear layers are computed: `e4m3`, which is what NetworkOptions::e4m3_rows means for it, with the
/// side branches left as they are; or by their operands' types where that is not asked. Error(Usage) if it is asked of
/// a network `name` that has no such policy.
PrecisionPolicy precision_of(const std::string& name, const NetworkOptions& options,
                             const std::optional<PrecisionPolicy>& e4m3);
/// The plan `name` with the one result `result`. `e4m3`: as precision_of.
Plan plan_one(const std::string& name, const std::string& result, const Expr& value, const NetworkOptions& options,
              const std::optional<PrecisionPolicy>& e4m3 = {});

}  // namespace tenon
