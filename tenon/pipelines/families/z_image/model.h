// A Z-Image model to run: a folder as diffusers writes it, or the published architecture with random weights.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tenon/backend/weights.h"
#include "tenon/io/byte_level_tokenizer.h"
#include "tenon/io/chat_template.h"
#include "tenon/io/component.h"
#include "tenon/models/decoder.h"
#include "tenon/models/vae.h"
#include "tenon/models/z_image.h"
#include "tenon/pipelines/samplers/settings.h"

namespace tenon {

/// Most tokens of a text, the chat template's among them: what the model was trained with.
inline constexpr int64_t kZImageTextTokens = 512;

struct ZImageDefaults {
  int64_t width = 1024, height = 1024;
  int steps = 8;
  double cfg_scale = 1;  ///< Z-Image-Turbo's: no guidance
};

class ZImageModel {
 public:
  /// `spec`: "random:z-image" or a path, as -m takes it. A folder holds transformer/, text_encoder/, vae/, tokenizer/
  /// and scheduler/scheduler_config.json. Error(Model) for what is missing, is of another kind or does not fit.
  static std::shared_ptr<const ZImageModel> open(const std::string& spec, uint64_t random_seed = 0);
  /// True for a folder whose transformer/config.json is Z-Image's.
  static bool reads(const std::filesystem::path& path);

  const std::string& name() const { return name_; }
  const ZImageConfig& transformer() const { return transformer_; }
  const DecoderConfig& text() const { return text_; }
  const VaeConfig& vae() const { return vae_; }
  Settings scheduler_config() const { return {scheduler_config_, scheduler_file_}; }
  const ZImageDefaults& defaults() const { return defaults_; }
  /// Pixels along a side of a token: sizes are multiples of it.
  int64_t size_unit() const { return vae_.downsampling() * kZImagePatch; }
  /// Blocks of the text encoder that are run: its hidden states in front of the last one are what the model reads.
  int64_t text_layers() const { return text_.layers - 1; }
  /// By name: "text_encoder", "transformer", "vae"; none for random weights.
  const std::map<std::string, Component>& components() const { return components_; }
  /// The ids of a prompt in the model's chat template, all of them. Error(Model) for random weights; Error(Usage) for
  /// text that is not UTF-8.
  std::vector<int32_t> tokens(const std::string& prompt) const;

  /// Names and shapes that the networks read of a component.
  WeightShapes shapes(const std::string& component) const;
  /// Error(Model) lists what is missing or has the wrong shape.
  std::unique_ptr<WeightSource> weights(const std::string& component) const;

 private:
  void open_folder(const std::filesystem::path& folder);
  void check_parts() const;

  std::string name_;
  ZImageConfig transformer_;
  DecoderConfig text_;
  VaeConfig vae_;
  nlohmann::json scheduler_config_;
  std::string scheduler_file_;  // for messages
  ZImageDefaults defaults_;
  std::map<std::string, Component> components_;
  std::vector<std::shared_ptr<const void>> files_;  // mapped, what the components look at
  std::optional<ByteLevelTokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  uint64_t random_seed_ = 0;
};

}  // namespace tenon
