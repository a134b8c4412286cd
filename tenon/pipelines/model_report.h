// What a checkpoint holds, and how it differs from what its networks need.
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
  std::string kind = {};                      ///< of file or folder: "diffusers folder"
  std::string architecture = {};              ///< "Stable Diffusion 1.x"
  std::optional<std::string> tokenizer = {};  ///< its folder, empty where it lacks; unset for models that have none
  /// By name. The bytes of their tensors are not to be read: the files may be closed.
  std::map<std::string, Component> components = {};
  std::map<std::string, WeightReport> differences = {};  ///< from what the networks need, by component
  std::vector<std::string> missing_components = {};
  std::vector<std::string> unexpected = {}, ignored = {};  ///< tensors of no component, as stored
  std::vector<std::string> notes = {};                     ///< what else a user should know, a sentence each
  std::shared_ptr<const void> held = {};                   ///< what `components` point into
  std::string problem = {};  ///< why it cannot be used; empty if nothing is known against it
  bool usable = false;
};

}  // namespace tenon
