// A Z-Image model ready to use: files (checkpoint.h), or the published architecture with random weights.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/backend/weights.h"
#include "tenon/io/chat_template.h"
#include "tenon/models/lora_names.h"
#include "tenon/pipelines/families/z_image/checkpoint.h"
#include "tenon/pipelines/generation_defaults.h"
#include "tenon/pipelines/samplers/settings.h"

namespace tenon {

/// Most tokens of a text, including the chat template's: the limit that the model was trained with.
inline constexpr int64_t kZImageTextTokens = 512;

class ZImageModel {
 public:
  /// `spec`: "random:z-image" or a path, as -m takes it. A folder holds transformer/, text_encoder/, vae/, tokenizer/
  /// and scheduler/scheduler_config.json; a file holds the transformer and possibly more. Error(Model) for files of
  /// another kind or that do not fit one another; missing parts are reported only when they are needed.
  static std::shared_ptr<const ZImageModel> open(const std::string& spec, uint64_t random_seed = 0,
                                                 const PartPaths& parts = {});

  const std::string& name() const { return name_; }
  const ZImageConfig& transformer() const { return files_.transformer; }
  const DecoderConfig& text() const { return files_.text; }
  const VaeConfig& vae() const { return files_.vae; }
  Settings scheduler_config() const { return {files_.scheduler, files_.scheduler_file}; }
  /// The folder's, or else Z-Image-Turbo's: 1024x1024, 8 steps, no guidance.
  const GenerationDefaults& defaults() const { return defaults_; }
  /// All words that it was trained on, if it was trained on few; otherwise empty.
  const KnownWords& known_words() const { return known_words_; }
  /// Pixels per token along a side; sizes are multiples of it.
  int64_t size_unit() const { return vae().downsampling() * kZImagePatch; }
  /// Number of text encoder blocks that are run: the model reads the hidden states before the last one.
  int64_t text_layers() const { return text().layers - 1; }
  /// By name: "text_encoder", "transformer", "vae"; none for random weights.
  const std::map<std::string, Component>& components() const { return files_.components; }
  const ZImageCheckpoint& files() const { return files_; }
  /// False only for a part missing from the model's files.
  bool has(const std::string& component) const { return random() || components().contains(component); }
  /// Error(Model) unless all parts needed for drawing are there.
  void require_all() const;
  /// Opens what drawing with the model's defaults opens, as far as its parts are there; a tokenizer is needed only with
  /// all of them, as it may come with the text encoder. Error(Model) is the one that drawing would end in.
  void require_usable() const;
  /// All ids of a prompt in the model's chat template. Error(Model) for random weights; Error(Usage) for text that is
  /// not UTF-8.
  std::vector<int32_t> tokens(const std::string& prompt) const;

  /// Names and shapes of a component's weights that the networks read.
  WeightShapes shapes(const std::string& component) const;
  LoraNames lora_names() const;
  /// Error(Model) lists missing tensors and wrong shapes.
  std::unique_ptr<WeightSource> weights(const std::string& component) const;

 private:
  void open_files(const std::filesystem::path& path, const PartPaths& parts);
  void read_index(const std::filesystem::path& file);
  void check_parts() const;
  void require_tokenizer() const;
  bool random() const { return components().empty(); }

  std::string name_;
  ZImageCheckpoint files_;
  GenerationDefaults defaults_{.width = 1024, .height = 1024, .steps = 8, .cfg_scale = 1, .sampler = {}};
  KnownWords known_words_;
  std::optional<ChatTemplate> chat_;
  uint64_t random_seed_ = 0;
};

}  // namespace tenon
