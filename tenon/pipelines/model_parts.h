// Models as seen by commands that work on single networks: named parts, each with a plan and weights, for any kind of
// model.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/backend/weights.h"
#include "tenon/models/weights.h"
#include "tenon/pipelines/family.h"
#include "tenon/pipelines/networks.h"

namespace tenon {

/// Sizes for a part; what is not given is the model's default.
struct PartRequest {
  int64_t batch = 1;
  int64_t width = 0, height = 0;  ///< pixels; 0: the model's
  int steps = 0;                  ///< of a schedule; 0: the model's
  double cfg_scale = -1;          ///< below 0: the model's
  int64_t context = 0;            ///< capacity per sequence of a language model's cache, in tokens; 0: 1024
};

/// A model split into its networks.
class ModelParts {
 public:
  static constexpr AbilityName kAbility{"explain", "show its networks", "default-model"};
  struct Options {};

  virtual ~ModelParts() = default;
  /// The name that was given: "random:sd15", or the folder's name.
  virtual std::string name() const = 0;
  /// Names for --part, and the default one.
  virtual std::vector<std::string> parts() const = 0;
  virtual std::string default_part() const { return parts().front(); }
  /// "512x512 batch 2": the sizes of a run of the part.
  virtual std::string describe(const std::string& part, const PartRequest& request) const = 0;
  /// Error(Usage) for sizes that the part does not support.
  virtual Plan plan(const std::string& part, const PartRequest& request, const NetworkOptions& options) const = 0;
  /// The component that the part's weights belong to, their names and shapes, and the weights themselves.
  virtual std::string component(const std::string& part) const { return part; }
  virtual WeightShapes shapes(const std::string& part) const = 0;
  virtual std::unique_ptr<WeightSource> weights(const std::string& part) const = 0;
  /// The type in which the model runs on this device unless another is asked for.
  virtual DType default_type(const Backend& backend) const { return backend.types().front(); }
  /// Networks that exceptions of a type may name. By default the components' names.
  virtual std::vector<NamedNetwork> networks() const;
  /// Arguments for bench/peers/torch_peer.py to run the same network. Error(Usage) if there is no such peer.
  virtual std::vector<std::string> peer_arguments(const std::string& part, const PartRequest& request) const = 0;

  /// The part of this name, the default one for "" or every part for "all"; otherwise Error(Usage) lists the names.
  std::vector<std::string> parts_named(const std::string& part) const;
};

/// The fields of a PartRequest that a model supports.
struct Requestable {
  bool size = false, steps = false, context = false;  ///< steps: guidance too
};
/// Error(Usage), naming the flag, if another field is given.
void check_request(const PartRequest& request, const Requestable& known, const std::string& model);

/// Opens the model that `spec` names as parts.
std::shared_ptr<const ModelParts> open_parts(const std::string& spec);

}  // namespace tenon
