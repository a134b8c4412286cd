// Stable Diffusion checkpoints: a diffusers folder, a single-file (LDM) checkpoint, or one component, brought to one
// form: for each component a map from diffusers' tensor names to tensors. No tensor is copied. What a name should be,
// and whether all are there, is for the models to say; what the checkpoint is, is said here.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tenon/io/component.h"

namespace tenon {

/// What a set of weights is, as far as their shapes tell.
enum class Architecture { StableDiffusion1, Inpainting, InstructPix2Pix, StableDiffusion2, StableDiffusionXL, Unknown };

/// A human name: "Stable Diffusion 1.x", "Stable Diffusion inpainting (9 input channels)", ...
std::string_view name_of(Architecture a);

struct CheckpointOptions {
  std::string variant;  ///< read "<file>.<variant>.safetensors" ("fp16", "non_ema") of a folder; "" takes what there is
  bool use_ema = false;  ///< single files with both: take the averaged UNet ("model_ema.") instead of the plain one
};

enum class CheckpointKind { DiffusersFolder, SingleFile, ComponentFile };

class StableDiffusionCheckpoint {
 public:
  /// Opens a folder with model_index.json or component folders, one component's folder, a .safetensors file or a
  /// *.safetensors.index.json. Error(Model): nothing at that path (with the list of what was looked for), a pickle
  /// (.ckpt, .bin, .pt: refused, with a hint), a file that breaks its format, tensors of no known component.
  static StableDiffusionCheckpoint open(const std::filesystem::path& path, const CheckpointOptions& options = {});

  const std::filesystem::path& path() const { return path_; }
  CheckpointKind kind() const { return kind_; }
  const std::map<std::string, Component>& components() const { return components_; }
  bool has(const std::string& component) const { return components_.count(component) > 0; }
  /// Error(Model) that lists what the checkpoint has, if this is not among it.
  const Component& component(const std::string& name) const;
  /// Folder with the tokenizer's files, if there is one.
  const std::optional<std::filesystem::path>& tokenizer() const { return tokenizer_; }
  /// scheduler_config.json and model_index.json; null if absent.
  const nlohmann::json& scheduler_config() const { return scheduler_config_; }
  const nlohmann::json& model_index() const { return model_index_; }
  /// Names of tensors that belong to no component or have no counterpart, as stored.
  const std::vector<std::string>& unexpected() const { return unexpected_; }
  /// Names of tensors that are known and not used (schedule buffers, the other set of UNet weights), as stored.
  const std::vector<std::string>& ignored() const { return ignored_; }
  /// Whether the UNet's weights are the averaged ones of a file with both sets.
  bool uses_ema() const { return uses_ema_; }

  /// What the weights are. Unknown without a UNet, unless the text encoder tells.
  Architecture architecture() const;
  /// Error(Model) naming what was found unless the architecture is Stable Diffusion 1.x with a 4-channel UNet.
  void require_stable_diffusion_1() const;

 private:
  friend class CheckpointReader;
  std::filesystem::path path_;
  CheckpointKind kind_ = CheckpointKind::SingleFile;
  std::map<std::string, Component> components_;
  std::optional<std::filesystem::path> tokenizer_;
  nlohmann::json scheduler_config_, model_index_;
  std::vector<std::string> unexpected_, ignored_;
  bool uses_ema_ = false;
  std::optional<Architecture> foreign_;            // recognised by names that only another family has
  std::vector<std::shared_ptr<const void>> keep_;  // the mapped files
};

}  // namespace tenon
