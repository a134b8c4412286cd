// Plans of networks, from an expression and options.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/models/weights.h"
#include "tenon/nn/low_rank.h"
#include "tenon/nn/scope.h"
#include "tenon/pipelines/network_type.h"
#include "tenon/plan/plan.h"

namespace tenon {

/// How a pipeline's networks are computed and planned.
struct NetworkOptions {
  nn::Precision precision = nn::kBf16;
  PrecisionPolicy policy = {};  ///< as in NetworkType
  nn::SideBranches side = {};   ///< of LoRAs; multiplied in the model's type regardless of the policy
  bool fusion = true;
  bool fold_scales = true, anchors_alone = false;  ///< as in PlanOptions
  Target target = {};                              ///< of the backend that runs the plans

  NetworkType type() const;
};

/// A network by the name that a type's exceptions use, and its weights.
struct NamedNetwork {
  std::string name;  ///< name of its plan
  WeightShapes weights;
};

/// Error(Usage) for an exception of `type` that matches neither the name of one of the model's networks nor part of the
/// name of one of their weights (a misspelling), since it would have no effect. `networks` is called only if there are
/// exceptions.
void check_exceptions(const NetworkType& type, const std::function<std::vector<NamedNetwork>()>& networks);

/// Error(Usage) if one of these networks, none of them a language model, cannot be planned in `type`: int8, or e4m3
/// without a policy of its own (`own`: as in precision_of). For opening a model: planning refuses it too, but later.
void check_rules(const NetworkType& type, std::span<const std::string_view> networks,
                 const std::optional<PrecisionPolicy>& own = {});

/// `options.policy` for the network `name`, whose own policy for e4m3 is `own`; side branches are not quantised.
/// Error(Usage) for e4m3 in a network without such a policy.
PrecisionPolicy precision_of(const std::string& name, const NetworkOptions& options,
                             const std::optional<PrecisionPolicy>& own = {});
/// A plan called `name` with one result, `result`. `own`: as in precision_of.
Plan plan_one(const std::string& name, const std::string& result, const Expr& value, const NetworkOptions& options,
              const std::optional<PrecisionPolicy>& own = {});

}  // namespace tenon
