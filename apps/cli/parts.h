// A model's networks by name, as in `--part`.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/cli/verb.h"
#include "tenon/pipelines/model_parts.h"
#include "tenon/runtime/weight_store.h"

namespace tenon::cli {

/// Flags of verbs that work on single networks: -m --part -W -H --batch-size --steps --cfg-scale --context --type
/// --deterministic --offload --no-fusion --no-fold.
struct PartFlags {
  std::string spec, part, type, deterministic, offload;
  PartRequest request;
  bool no_fusion = false, no_fold = false;

  /// `default_part`: "all", or "" for the model's default.
  void declare(CLI::App& app, const std::string& default_part);
  /// The backend for these and the common flags. Error(Device) if there is none of that name.
  std::shared_ptr<Backend> backend(const Common& common) const;
  /// The same, for running plans. Error(Usage) for a backend that computes nothing, which cannot be timed or checked.
  std::shared_ptr<Backend> computing_backend(const Common& common) const;
  /// Precision from the flags, or the model's default on this backend. Error(Usage) for a type that the backend cannot
  /// compute in, and for an exception that matches nothing in the model.
  NetworkOptions networks(const Backend& backend, const ModelParts& model) const;
  /// A part's weights on a backend, offloaded as --offload says; with a null source, only for planning memory.
  std::shared_ptr<WeightStore> weights(const std::shared_ptr<Backend>& backend,
                                       std::shared_ptr<const WeightSource> source) const;
};

/// Adds --offload; parse_offload parses its value.
void declare_offload(CLI::App& app, std::string& size);
/// Adds --type; NetworkType::parse parses its value.
void declare_type(CLI::App& app, std::string& type);
/// The same for training, which uses f32 by default and supports fewer types.
void declare_training_type(CLI::App& app, std::string& type, const std::vector<std::string>& types);
/// The value of that flag, one of `types` in any spelling. Error(Usage) with the text `rule` ("LoRAs are trained in f32
/// or bf16") for any other, for exceptions, and for a type that the backend cannot compute in.
DType training_type(const std::string& given, const std::vector<std::string>& types, const std::string& rule,
                    const Backend& backend);
/// Whether --no-fusion or TENON_NO_FUSION asks for one launch per node.
bool fusion_is_off(bool flag);
/// Whether --no-fold or TENON_NO_FOLD keeps constant scales out of the weights.
bool folding_is_off(bool flag);

}  // namespace tenon::cli
