// Networks as plans: from an expression and options to what a backend runs.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/models/weights.h"
#include "tenon/nn/low_rank.h"
#include "tenon/nn/scope.h"
#include "tenon/plan/plan.h"

namespace tenon {

/// What networks are asked to compute in (`--type`): the type of weights and activations in memory, and a policy for
/// all of them. There the rule `e4m3 rows` means those layers of a network that bear it, by the network's own policy;
/// and an exception may name a network ("text_encoder") in place of a part of weights' names.
struct NetworkType {
  DType stored = DType::BF16;
  PrecisionPolicy policy = {};

  /// Of bf16, f16 or f32 that type, for operands as well; e4m3 and i8 are bf16 with rows of that in linear layers.
  NetworkType(DType type);  // NOLINT(google-explicit-constructor): a type is the common choice
  /// A type (bf16, f16, f32, e4m3 or int8, or as others spell these), and exceptions behind it as
  /// PrecisionPolicy::parse takes them: "e4m3, bf16: text_encoder". Throws Error(Usage) that names what was expected.
  static NetworkType parse(std::string_view text);
  /// Of the policy's rule: what the constructor was given.
  DType name() const;
  /// Inverse of parse.
  std::string text() const;
};

/// Arithmetic and planning of a pipeline's networks.
struct NetworkOptions {
  nn::Precision precision = nn::kBf16;
  PrecisionPolicy policy = {};  ///< as NetworkType::policy
  nn::SideBranches side = {};   ///< of LoRAs, multiplied in the model's type whatever the policy says
  bool fusion = true;
  bool fold_scales = true, anchors_alone = false;  ///< as PlanOptions
  Target target = {};                              ///< of the backend that runs the plans

  NetworkType type() const;
};

/// A network as exceptions of a type name it, and its weights.
struct NamedNetwork {
  std::string name;  ///< of its plan
  WeightShapes weights;
};

/// Error(Usage) for an exception of `type` that is neither the name of one of a model's networks nor a part of a name
/// of their weights, as a misspelled one is: nothing would follow it. Networks are asked for only if there are
/// exceptions.
void check_exceptions(const NetworkType& type, const std::function<std::vector<NamedNetwork>()>& networks);

/// `options.policy` for the network `name`, whose own policy for e4m3 is `own`; side branches are not quantised.
/// Error(Usage) for e4m3 in a network that has no such policy.
PrecisionPolicy precision_of(const std::string& name, const NetworkOptions& options,
                             const std::optional<PrecisionPolicy>& own = {});
/// The plan `name` with the one result `result`. `own`: as precision_of.
Plan plan_one(const std::string& name, const std::string& result, const Expr& value, const NetworkOptions& options,
              const std::optional<PrecisionPolicy>& own = {});

}  // namespace tenon
