// A Stable Diffusion 1.x model ready to use: a checkpoint on disk, or a preset with reproducible random weights.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tenon/backend/backend.h"
#include "tenon/backend/weight_source.h"
#include "tenon/io/clip_tokenizer.h"
#include "tenon/models/stable_diffusion.h"
#include "tenon/models/stable_diffusion_checkpoint.h"
#include "tenon/pipelines/generation_defaults.h"
#include "tenon/pipelines/known_words.h"
#include "tenon/pipelines/samplers/settings.h"

namespace tenon {

class StableDiffusionModel {
 public:
  /// `spec`: "" = the embedded default model; "random:NAME" = a preset with random weights; otherwise a path, tried as
  /// is and below TENON_MODEL_DIR. Error(Model) says what was looked for.
  static std::shared_ptr<const StableDiffusionModel> open(const std::string& spec, uint64_t random_seed = 0);

  /// The model in an opened checkpoint.
  static std::shared_ptr<const StableDiffusionModel> of(StableDiffusionCheckpoint checkpoint);

  const std::string& name() const { return name_; }
  const StableDiffusionConfig& config() const { return config_; }
  /// The settings for a sampler, named as for choose_sampler: the file's, as diffusers' StableDiffusionPipeline changes
  /// them. steps_offset is 1 and clip_sample false; keys that the file lacks, only for the sampler that it names.
  Settings scheduler_config(std::string_view sampler = {}) const;
  const GenerationDefaults& defaults() const { return defaults_; }
  /// All words that it was trained on, if it was trained on few; otherwise empty.
  const KnownWords& known_words() const { return known_words_; }
  /// Null for random models.
  const StableDiffusionCheckpoint* checkpoint() const { return checkpoint_ ? &*checkpoint_ : nullptr; }
  /// The model's tokenizer, or CLIP's (which comes with the program) for a model that has none but has CLIP's
  /// vocabulary. Error(Model) for another model without a tokenizer, or if it does not match the text encoder.
  const ClipTokenizer& tokenizer() const;
  bool has_tokenizer() const { return tokenizer_.has_value(); }
  /// complete_sampling of generation_defaults.h, for this model.
  void complete_sampling(ImageRequest& request) const;
  /// Weights of "text_encoder", "unet" or "vae". Error(Model) lists missing tensors and wrong shapes, or names one that
  /// is not floating point.
  std::unique_ptr<WeightSource> weights(const std::string& component) const;
  /// Opens the weights of all components: Error(Model) as weights().
  void require_components() const;
  /// Opens everything that drawing with the model's defaults opens: Error(Model) is the one that drawing would end in.
  void require_all() const;

 private:
  void set_scheduler_config(const nlohmann::json& file);

  std::string name_;
  StableDiffusionConfig config_;
  nlohmann::json scheduler_config_, other_samplers_config_;  // for the sampler that the file names, and for the others
  std::string scheduler_file_;                               // for messages
  GenerationDefaults defaults_;
  KnownWords known_words_;
  std::optional<StableDiffusionCheckpoint> checkpoint_;
  std::optional<ClipTokenizer> tokenizer_;
  uint64_t random_seed_ = 0;
};

}  // namespace tenon
