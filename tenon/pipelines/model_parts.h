// Models as the verbs that look at single networks see them: named parts, each with a plan and weights, whatever the
// model is for.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/weights.h"
#include "tenon/models/weights.h"
#include "tenon/pipelines/family.h"
#include "tenon/pipelines/networks.h"

namespace tenon {

/// What a caller asks of a part; what is not given is the model's own.
struct PartRequest {
  int64_t batch = 1;
  int64_t width = 0, height = 0;  ///< pixels; 0: the model's
  int steps = 0;                  ///< of a schedule; 0: the model's
  double cfg_scale = -1;          ///< below 0: the model's
  int64_t context = 0;            ///< tokens that a language model's cache holds of a sequence; 0: 1024
};

/// A model taken apart into its networks.
class ModelParts {
 public:
  static constexpr AbilityName kAbility{"explain", "show its networks", "default-model"};
  struct Options {};

  virtual ~ModelParts() = default;
  /// As it was asked for: "random:sd15", or the folder's name.
  virtual std::string name() const = 0;
  /// Names for --part, and the one that is meant where none is given.
  virtual std::vector<std::string> parts() const = 0;
  virtual std::string default_part() const { return parts().front(); }
  /// "512x512 batch 2": what a run of the part works on.
  virtual std::string describe(const std::string& part, const PartRequest& request) const = 0;
  /// Error(Usage) for sizes that the part cannot have.
  virtual Plan plan(const std::string& part, const PartRequest& request, const NetworkOptions& options) const = 0;
  /// The component that the part's weights belong to, their names and shapes, and the weights themselves.
  virtual std::string component(const std::string& part) const { return part; }
  virtual WeightShapes shapes(const std::string& part) const = 0;
  virtual std::unique_ptr<WeightSource> weights(const std::string& part) const = 0;
  /// What exceptions of a type may name. By default parts go by their components' names.
  virtual std::vector<NamedNetwork> networks() const;
  /// Arguments that make bench/peers/torch_peer.py run the same network. Error(Usage) if it has none.
  virtual std::vector<std::string> peer_arguments(const std::string& part, const PartRequest& request) const = 0;

  /// The part of this name, the default one for "" or every part for "all"; Error(Usage) lists them otherwise.
  std::vector<std::string> parts_named(const std::string& part) const;
};

/// What a model knows what to do with, of a PartRequest.
struct Requestable {
  bool size = false, steps = false, context = false;  ///< steps: guidance too
};
/// Error(Usage), by the flag's name, if something else is given.
void check_request(const PartRequest& request, const Requestable& known, const std::string& model);

/// The model that `spec` names, by its family.
std::shared_ptr<const ModelParts> open_parts(const std::string& spec);

}  // namespace tenon
