// The networks of a model one by one, as `--part` names them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tenon/pipelines/networks.h"
#include "verb.h"

namespace tenon::cli {

/// Flags of the verbs that look at single networks: -m --part -W -H --batch-size --steps --cfg-scale --type
/// --no-fusion.
struct PartFlags {
  std::string spec, part, type;
  int64_t width = 0, height = 0;  ///< 0: the model's own size
  int64_t batch = 1;
  int steps = 0;          ///< 0: the model's own
  double cfg_scale = -1;  ///< below 0: the model's own; at most 1: no guidance
  bool no_fusion = false;

  void declare(CLI::App& app, const std::string& default_part);
  /// Sizes with the model's defaults filled in, checked.
  GenerationShape shape(const Model& model) const;
  /// Arithmetic that the flags or the backend ask for. Error(Usage) for a type that cannot be computed in.
  NetworkOptions networks(const Backend& backend) const;
  /// The parts asked for: one, or all.
  std::vector<std::string> parts() const;
};

/// "text", "unet", "vae-decode", "vae-encode".
const std::vector<std::string>& part_names();
Plan plan_part(const Model& model, const std::string& part, const GenerationShape& shape,
               const NetworkOptions& options);
/// Weights of the component that the part belongs to.
std::unique_ptr<WeightSource> weights_of_part(const Model& model, const std::string& part);
/// --type as an element type: bf16, f16 or f32 ("fp32" and "float32" mean f32). Error(Usage) otherwise.
DType parse_type(const std::string& flag);
/// Whether --no-fusion or TENON_NO_FUSION asks for one launch a node.
bool fusion_is_off(bool flag);

}  // namespace tenon::cli
