// The contents of a checkpoint, and how they differ from what its networks need.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/io/component.h"
#include "tenon/models/weights.h"

namespace tenon {

struct ModelReport {
  std::string kind = {};                      ///< of the file or folder: "diffusers folder"
  std::string architecture = {};              ///< "Stable Diffusion 1.x"
  std::optional<std::string> tokenizer = {};  ///< its folder, empty if missing; unset for models that need none
  /// By name. Do not read the tensors' bytes: the files may be closed.
  std::map<std::string, Component> components = {};
  std::map<std::string, WeightReport> differences = {};  ///< from what the networks need, by component
  std::vector<std::string> missing_components = {};
  std::vector<std::string> unexpected = {}, ignored = {};  ///< tensors of no component, by stored name
  std::vector<std::string> notes = {};                     ///< further remarks for the user, one sentence each
  std::shared_ptr<const void> held = {};                   ///< owns what `components` point into
  std::string problem = {};                                ///< why it cannot be used; empty if no reason is known
  bool usable = false;
};

}  // namespace tenon
