// GRPO and its kin: completions are drawn, judged, and made likelier or less likely. A step: `prompts` problems,
// `group` completions of each, rewards, advantages within a group, and `epochs` updates on the same batch.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tenon/pipelines/language_model.h"
#include "tenon/train/checkpoint.h"
#include "tenon/train/decoder_loss.h"
#include "tenon/train/problems.h"
#include "tenon/train/rewards.h"
#include "tenon/train/rollout.h"
#include "tenon/train/schedule.h"
#include "tenon/train/updater.h"

namespace tenon::train {

struct GrpoOptions {
  int64_t prompts = 2, group = 8, epochs = 2;
  int64_t micro_rows = 0;     ///< rows that the gradient is computed of at a time; 0: all
  int64_t most_tokens = 256;  ///< of a completion
  nn::PolicyLoss loss = nn::PolicyLoss::DrGrpo;
  nn::PolicyOptions terms{0.2, 0.2, 0, 0.04};
  ScaleRewards scale = ScaleRewards::None;
  nn::LowRank adapter;          ///< trained in the place of the model's weights, where its rank is above 0
  bool mask_truncated = false;  ///< completions without an end are not learnt from; they count in their group's mean
  std::vector<Reward> rewards{{}};
  std::string system;  ///< the chat's first message; empty: none
  std::string optimizer = "adamw";
  OptimizerOptions optimizer_options{-1, -1, -1, 0.01};
  Schedule schedule{1e-6, Decay::Constant, 0, 1000, 0};
  double clip = 1;
  double ema = 0;  ///< decay of a moving average of the weights, which is evaluated and written at the end; 0: none
  int64_t evaluate_every = 25, evaluate_count = 64;
  int64_t checkpoint_every = 25, keep = 2;
  uint64_t seed = 42;
  bool tensorboard = false;  ///< metrics as an event file too
  nn::Precision precision = nn::kF32;
};
/// Error(Usage) that names what is out of its range.
void check_grpo(const GrpoOptions& o);

/// Where problems come from, and those for evaluation.
struct GrpoData {
  ProblemAt train, evaluation;
  nlohmann::ordered_json about;  ///< what a checkpoint remembers of it
};

/// One run over a folder. What is random is drawn from the seed, the step and the row, so that a run that goes on from
/// a checkpoint gives the bits of one that was never stopped.
class Grpo {
 public:
  /// Goes on from the folder's last checkpoint if there is one. Error(Usage): another run has the folder, or a
  /// checkpoint of other options; Error(Model), Error(Memory).
  Grpo(std::shared_ptr<Backend> backend, std::shared_ptr<const LanguageModel> model, GrpoData data, GrpoOptions options,
       const std::filesystem::path& output);
  ~Grpo();
  Grpo(const Grpo&) = delete;
  Grpo& operator=(const Grpo&) = delete;

  /// Called with a step's, or an evaluation's, metrics, as they stand in metrics.jsonl.
  using OnMetrics = std::function<void(const nlohmann::ordered_json&)>;
  /// Trains to the schedule's last step, or until `stop` says so behind a step: then there is a checkpoint of that
  /// step, and it returns false. Error(Numeric) names the step of a loss or gradient that is no number; the last
  /// checkpoint stays. At the end the folder holds the model as transformers reads it.
  bool run(const OnMetrics& each, const std::function<bool()>& stop);

  int64_t step() const;
  /// Numbers that are trained; bytes of these, gradients, moments and averages.
  int64_t parameter_count() const;
  int64_t parameter_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenon::train
