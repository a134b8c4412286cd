// A model to run: a checkpoint on disk, or a named architecture with reproducible random weights in memory.
#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tenon/backend/backend.h"
#include "tenon/io/checkpoint.h"
#include "tenon/io/clip_tokenizer.h"
#include "tenon/models/stable_diffusion.h"
#include "tenon/pipelines/known_words.h"
#include "tenon/pipelines/schedulers/settings.h"

namespace tenon {

/// Most steps that a schedule is asked for.
inline constexpr int kMaxSteps = 1000;

/// What a model folder says about its use (model_index.json, key "_tenon_defaults"), or Stable Diffusion 1.5's values.
struct GenerationDefaults {
  int64_t width = 512, height = 512;
  int steps = 20;
  double cfg_scale = 7.5;
  std::string sampler;  ///< empty: the scheduler_config's own
};

class Model {
 public:
  /// `spec`: "" = the embedded default model; "random:NAME" = a preset with random weights; otherwise a path, tried as
  /// it is and below TENON_MODEL_DIR. Error(Model) says what was looked for.
  static std::shared_ptr<const Model> open(const std::string& spec, uint64_t random_seed = 0);

  const std::string& name() const { return name_; }
  const StableDiffusionConfig& config() const { return config_; }
  Settings scheduler_config() const { return {scheduler_config_, scheduler_file_}; }
  const GenerationDefaults& defaults() const { return defaults_; }
  /// All the words that it was trained on, of a model that was trained on few; empty otherwise.
  const KnownWords& known_words() const { return known_words_; }
  /// Null for random models.
  const Checkpoint* checkpoint() const { return checkpoint_ ? &*checkpoint_ : nullptr; }
  /// The model's own, or CLIP's (which comes with the program) for a model that came without one and has CLIP's
  /// vocabulary. Error(Model) for another model without one.
  const ClipTokenizer& tokenizer() const;
  bool has_tokenizer() const { return tokenizer_.has_value(); }
  /// Weights of "text_encoder", "unet" or "vae". Error(Model) lists what is missing or has the wrong shape.
  std::unique_ptr<WeightSource> weights(const std::string& component) const;

 private:
  std::string name_;
  StableDiffusionConfig config_;
  nlohmann::json scheduler_config_;
  std::string scheduler_file_;  // for messages
  GenerationDefaults defaults_;
  KnownWords known_words_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<ClipTokenizer> tokenizer_;
  uint64_t random_seed_ = 0;
};

/// What comes with the program: share/tenon/`name` beside an installed library, else assets/`name` of the source tree,
/// whichever holds `file`. Error(Model) lists the places that were tried.
std::filesystem::path asset_folder(const std::string& name, const std::string& file);
/// Folder of the embedded default model.
std::filesystem::path default_model_folder();
/// What a model at `path` is called in results and messages: the last part of the path, as `shown` makes it.
std::string model_name(const std::filesystem::path& path);
/// The path that `spec` names, as it is, below TENON_MODEL_DIR, or a folder that was fetched into the cache.
/// Error(Model) says what was looked for.
std::filesystem::path find_model(const std::string& spec);

}  // namespace tenon
