// The networks of a model one by one, as `--part` names them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/cli/verb.h"
#include "tenon/pipelines/model_parts.h"
#include "tenon/runtime/weight_store.h"

namespace tenon::cli {

/// Flags of the verbs that look at single networks: -m --part -W -H --batch-size --steps --cfg-scale --context
/// --type --deterministic --offload --no-fusion --no-fold.
struct PartFlags {
  std::string spec, part, type, deterministic, offload;
  PartRequest request;
  bool no_fusion = false, no_fold = false;

  /// `default_part`: "all", or "" for the model's own.
  void declare(CLI::App& app, const std::string& default_part);
  /// The backend that these and the common flags ask for. Error(Device) if there is none of that name.
  std::shared_ptr<Backend> backend(const Common& common) const;
  /// The same, to run plans on. Error(Usage) for one that computes nothing, so that nothing can be timed or checked.
  std::shared_ptr<Backend> computing_backend(const Common& common) const;
  /// Arithmetic that the flags or the backend ask for. Error(Usage) for a type that cannot be computed in, and for an
  /// exception of it that names nothing of the model.
  NetworkOptions networks(const Backend& backend, const ModelParts& model) const;
  /// A part's weights on a backend, offloaded as --offload says; of a null source: to plan memory with.
  std::shared_ptr<WeightStore> weights(const std::shared_ptr<Backend>& backend,
                                       std::shared_ptr<const WeightSource> source) const;
};

/// Adds --offload, whose value parse_offload reads.
void declare_offload(CLI::App& app, std::string& size);
/// Adds --type, whose value NetworkType::parse reads, or parse_type where there is one type for all.
void declare_type(CLI::App& app, std::string& type);
/// The same for training, which computes in f32 unless told otherwise, and in fewer types.
void declare_training_type(CLI::App& app, std::string& type, const std::vector<std::string>& types);
/// --type without exceptions, as an element type. Error(Usage) otherwise.
DType parse_type(const std::string& flag);
/// Whether --no-fusion or TENON_NO_FUSION asks for one launch a node.
bool fusion_is_off(bool flag);
/// Whether --no-fold or TENON_NO_FOLD keeps constant scales out of the weights.
bool folding_is_off(bool flag);

}  // namespace tenon::cli
