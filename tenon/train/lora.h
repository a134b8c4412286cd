// Trains LoRAs of models that draw from a few pictures: A and B beside linear layers of the denoising network,
// everything else unchanged.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tenon/optim/optimizer.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/plan/plan.h"
#include "tenon/train/lora_layers.h"
#include "tenon/train/picture_set.h"
#include "tenon/train/schedule.h"
#include "tenon/train/timesteps.h"

namespace tenon::train {

inline constexpr const char* kLoraFile = "pytorch_lora_weights.safetensors";
/// Names of all files that a run may write into its folder at the end.
std::vector<std::string> lora_files();

/// Sample pictures drawn with what the run has learnt so far.
struct SampleOptions {
  int64_t every = 0;  ///< steps; 0: none
  std::vector<std::string> prompts;
  uint64_t seed = 0;  ///< picture i uses seed + i
  int steps = 0;      ///< of the sampler; 0: the model's default
  std::function<std::unique_ptr<ImageGenerator>()> open;
};

struct LoraOptions {
  std::filesystem::path cache;    ///< as in encode_pictures
  std::filesystem::path adapter;  ///< a LoRA applied to the base during training, and not included in the result
  int64_t rank = 16;
  double alpha = 0;  ///< 0: the rank
  std::vector<std::string> targets = attention_targets();
  int64_t width = 0, height = 0;  ///< pixels; 0: the model's default
  bool aspect_buckets = false;    ///< keep approximate aspect ratios, at about that area (train/picture_sizes.h)
  bool flip = false;
  int64_t batch = 1, accumulation = 1;
  TimestepOptions timesteps;
  std::optional<double> shift;
  std::string optimizer = "adamw";
  OptimizerOptions optimizer_options{-1, -1, -1, 1e-4};
  Schedule schedule{1e-4, Decay::Constant, 0, 500, 0};
  double clip = 1;
  double ema = 0;           ///< decay of a moving average of A and B, which is then what is written at the end; 0: none
  int64_t arena_bytes = 0;  ///< as in GradientOptions
  int64_t validate_every = 0;
  int64_t validate_levels = 16;  ///< evenly spread noise levels, taken in turn until each picture had one
  int64_t checkpoint_every = 100, keep = 2;
  SampleOptions samples;
  uint64_t seed = 42;
  bool tensorboard = false;
  LoraFormat format = LoraFormat::Diffusers;  ///< format of a second file written beside kLoraFile
  DType type = DType::F32;  ///< f32 or bf16; e4m3: rows of the layers that tolerate it, gradients included, everything
                            ///< else bf16

  /// Type of stored values and of weights that are not quantised.
  DType stored() const { return type == DType::E4M3 ? DType::BF16 : type; }
  double scale() const { return alpha == 0 ? 1 : alpha / static_cast<double>(rank); }
};
/// Error(Usage) that names an option out of range.
void check_lora(const LoraOptions& o);
/// The same, and for what this model does not support: sizes, noise levels, targets, types, an adapter. Error(Model) if
/// the adapter is invalid.
void check_lora(const LoraOptions& o, const TrainableDenoiser& model);

/// Plans of a step, by picture size.
using StepPlans = std::map<PictureSize, Plan>;
/// Plans a run's steps before anything is drawn, encoded or written. Only the sizes and captions of `pictures` matter,
/// and the captions of `held`. Error(Memory) for what does not fit o.arena_bytes.
StepPlans plan_steps(const LoraOptions& o, const TrainableDenoiser& model, const Backend& backend,
                     const std::vector<CaptionedPicture>& pictures, const std::vector<CaptionedPicture>& held);

/// One run in a folder. Everything random is drawn from the seed and the example's number, so that a run resumed from a
/// checkpoint is bit-identical to one that was never stopped.
class LoraTraining {
 public:
  /// `held`: pictures for the validation loss; none: the training pictures. `plans`: from plan_steps with the same
  /// arguments; missing ones are planned. Resumes from the folder's last checkpoint if
  /// there is one. Error(Usage): bad options or pictures, another run holds the folder, or the checkpoint has other
  /// options; Error(Model), Error(Memory).
  LoraTraining(std::shared_ptr<Backend> backend, std::unique_ptr<TrainableDenoiser> model,
               const std::vector<CaptionedPicture>& pictures, const std::vector<CaptionedPicture>& held,
               LoraOptions options, const std::filesystem::path& output, StepPlans plans = {});
  ~LoraTraining();
  LoraTraining(const LoraTraining&) = delete;
  LoraTraining& operator=(const LoraTraining&) = delete;

  using OnMetrics = std::function<void(const nlohmann::ordered_json&)>;
  /// Trains to the schedule's last step and returns true, or until `stop` returns true after a step: then it writes a
  /// checkpoint of that step and returns false. Error(Numeric) names the step of a loss or gradient that is not finite;
  /// the last checkpoint remains. At the end the folder holds the LoRA.
  bool run(const OnMetrics& each, const std::function<bool()>& stop);

  int64_t step() const;
  int64_t layers() const, parameter_count() const;
  int64_t sizes() const;        ///< number of picture sizes; each has its own plan over the same weights
  int64_t arena_bytes() const;  ///< of a step: the shared arena, plus the most that one plan has besides it
  int64_t encoded() const;      ///< number of pictures and texts that were not in the cache

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenon::train
