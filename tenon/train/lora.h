// LoRAs of models that draw, learnt from a few pictures: A and B beside linear layers of the network that removes
// noise, everything else as it is.
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

/// Pictures that a run draws with what it has learnt so far.
struct SampleOptions {
  int64_t every = 0;  ///< steps; 0: none
  std::vector<std::string> prompts;
  uint64_t seed = 0;  ///< picture i has seed + i
  int steps = 0;      ///< of the sampler; 0: the model's own
  std::function<std::unique_ptr<ImageGenerator>()> open;
};

struct LoraOptions {
  std::filesystem::path adapter;  ///< a LoRA that the base has while this one is learnt, and that is left out of it
  int64_t rank = 16;
  double alpha = 0;  ///< 0: the rank
  std::vector<std::string> targets = attention_targets();
  int64_t width = 0, height = 0;  ///< pixels; 0: the model's own
  bool aspect_buckets = false;    ///< pictures keep about their shapes, at about that area (train/picture_sizes.h)
  bool flip = false;
  int64_t batch = 1, accumulation = 1;
  TimestepOptions timesteps;
  std::optional<double> shift;
  std::string optimizer = "adamw";
  OptimizerOptions optimizer_options{-1, -1, -1, 1e-4};
  Schedule schedule{1e-4, Decay::Constant, 0, 500, 0};
  double clip = 1;
  double ema = 0;           ///< decay of a moving average of A and B, which is what is written at the end; 0: none
  int64_t arena_bytes = 0;  ///< as GradientOptions
  int64_t validate_every = 0, validate_count = 16;
  int64_t checkpoint_every = 100, keep = 2;
  SampleOptions samples;
  uint64_t seed = 42;
  bool tensorboard = false;
  LoraFormat format = LoraFormat::Diffusers;  ///< of another file beside kLoraFile
  DType type = DType::F32;  ///< f32 or bf16; e4m3: rows of what bears it, in the gradients too, all else in bf16

  /// Of values where they are stored, and of weights that are not quantised.
  DType stored() const { return type == DType::E4M3 ? DType::BF16 : type; }
  double scale() const { return alpha == 0 ? 1 : alpha / static_cast<double>(rank); }
};
/// Error(Usage) that names what is out of its range.
void check_lora(const LoraOptions& o);
/// The same, and what this model cannot do: sizes, noise levels, targets, types, an adapter. Error(Model): it is none.
void check_lora(const LoraOptions& o, const TrainableDenoiser& model);

/// Of a step on pictures of each size.
using StepPlans = std::map<PictureSize, Plan>;
/// Plans a run's steps before anything is drawn, encoded or written: of `pictures` sizes and captions count, of `held`
/// captions. Error(Memory) for what does not fit o.arena_bytes.
StepPlans plan_steps(const LoraOptions& o, const TrainableDenoiser& model, const Backend& backend,
                     const std::vector<CaptionedPicture>& pictures, const std::vector<CaptionedPicture>& held);

/// One run over a folder. What is random is drawn from the seed and the example's number, so that a run that goes on
/// from a checkpoint gives the bits of one that was never stopped.
class LoraTraining {
 public:
  /// `held`: pictures that the validation loss is of; none: those that are learnt from. `cache`: as encode_pictures.
  /// `plans`: as plan_steps gave them for the same; what is not there is planned.
  /// Goes on from the folder's last checkpoint if there is one. Error(Usage): bad options or pictures, another run has
  /// the folder, or a checkpoint of other options; Error(Model), Error(Memory).
  LoraTraining(std::shared_ptr<Backend> backend, std::unique_ptr<TrainableDenoiser> model,
               const std::vector<CaptionedPicture>& pictures, const std::vector<CaptionedPicture>& held,
               LoraOptions options, const std::filesystem::path& output, const std::filesystem::path& cache,
               StepPlans plans = {});
  ~LoraTraining();
  LoraTraining(const LoraTraining&) = delete;
  LoraTraining& operator=(const LoraTraining&) = delete;

  using OnMetrics = std::function<void(const nlohmann::ordered_json&)>;
  /// Trains to the schedule's last step, or until `stop` says so behind a step: then there is a checkpoint of that
  /// step, and it returns false. Error(Numeric) names the step of a loss or gradient that is no number; the last
  /// checkpoint stays. At the end the folder holds the LoRA.
  bool run(const OnMetrics& each, const std::function<bool()>& stop);

  int64_t step() const;
  int64_t layers() const, parameter_count() const;
  int64_t sizes() const;        ///< of pictures, each with a plan of its own over the same weights
  int64_t arena_bytes() const;  ///< of a step: what they share, and the most that one of them has beside it
  int64_t encoded() const;      ///< pictures and texts that were not in the cache

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenon::train
