// Stable Diffusion checkpoints: a diffusers folder, a single-file (LDM) checkpoint, or one component, all brought to
// the same form: for each component a map from diffusers' tensor names to tensors. No tensor is copied. This file
// determines what the checkpoint is; the models determine which names they need and whether all are there.
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

/// The architecture of a set of weights, as far as their shapes tell.
enum class Architecture { StableDiffusion1, Inpainting, InstructPix2Pix, StableDiffusion2, StableDiffusionXL, Unknown };

/// A readable name: "Stable Diffusion 1.x", "Stable Diffusion inpainting (9 input channels)", ...
std::string_view name_of(Architecture a);

struct CheckpointOptions {
  std::string variant;  ///< read "<file>.<variant>.safetensors" ("fp16", "non_ema") of a folder; "" takes what there is
  bool use_ema = false;  ///< single files with both: use the averaged UNet ("model_ema.") instead of the plain one
};

enum class CheckpointKind { DiffusersFolder, SingleFile, ComponentFile };

class StableDiffusionCheckpoint {
 public:
  /// Opens a folder with model_index.json or component folders, one component's folder, a .safetensors file or a
  /// *.safetensors.index.json. Error(Model): nothing at that path (lists what was looked for), a pickle (.ckpt, .bin,
  /// .pt: refused, with a hint), a malformed file, tensors of no known component.
  static StableDiffusionCheckpoint open(const std::filesystem::path& path, const CheckpointOptions& options = {});

  const std::filesystem::path& path() const { return path_; }
  CheckpointKind kind() const { return kind_; }
  const std::map<std::string, Component>& components() const { return components_; }
  bool has(const std::string& component) const { return components_.count(component) > 0; }
  /// The component; Error(Model) lists those that the checkpoint has if this is not one of them.
  const Component& component(const std::string& name) const;
  /// Folder with the tokenizer's files, if there is one.
  const std::optional<std::filesystem::path>& tokenizer() const { return tokenizer_; }
  /// scheduler_config.json and model_index.json; null if absent.
  const nlohmann::json& scheduler_config() const { return scheduler_config_; }
  const nlohmann::json& model_index() const { return model_index_; }
  /// Names, as stored, of tensors that belong to no component or have no counterpart.
  const std::vector<std::string>& unexpected() const { return unexpected_; }
  /// Names, as stored, of tensors that are known but unused (schedule buffers, the other set of UNet weights).
  const std::vector<std::string>& ignored() const { return ignored_; }
  /// Whether the UNet's weights are the averaged ones, of a file with both sets.
  bool uses_ema() const { return uses_ema_; }

  /// The architecture of the weights. Without a UNet it is Unknown, unless the text encoder tells.
  Architecture architecture() const;
  /// Error(Model), naming what was found, unless the architecture is Stable Diffusion 1.x with a 4-channel UNet.
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
  std::optional<Architecture> foreign_;            // recognised by names that only another family uses
  std::vector<std::shared_ptr<const void>> keep_;  // the mapped files
};

}  // namespace tenon
