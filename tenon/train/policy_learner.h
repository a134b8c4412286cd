// A policy that samples completions and is updated by their advantages: GRPO's networks over one set of weights,
// working on tokens rather than texts.
#pragma once
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "tenon/pipelines/language_model.h"
#include "tenon/train/decoder_loss.h"
#include "tenon/train/gradients.h"
#include "tenon/train/grpo_options.h"
#include "tenon/train/policy_batch.h"
#include "tenon/train/recent.h"
#include "tenon/train/rollout.h"
#include "tenon/train/shared_tokens.h"
#include "tenon/train/time_spent.h"
#include "tenon/train/updater.h"

namespace tenon::train {

/// Refuses what no update can do, before anything is allocated: plans the smallest one, of this prompt with completions
/// of one token. Throws Error(Memory) with the bytes it needs if these are more than options.arena_bytes, or than the
/// memory that masters, moments and averages leave.
void check_update_fits(const std::shared_ptr<Backend>& backend, const LanguageModel& model, const GrpoOptions& options,
                       const std::vector<int32_t>& prompt);

class PolicyLearner {
 public:
  /// Trains the model's weights, or those of an adapter beside them. `options` and `time` must outlive it; learn()
  /// enters "plans" (making plans, the reference's too), "reference", "gradients" and "update" into `time`.
  /// Error(Model), Error(Memory).
  PolicyLearner(std::shared_ptr<Backend> backend, const LanguageModel& model, const GrpoOptions& options,
                TimeSpent& time);

  /// The network that is trained: the model's, with an adapter if there is one.
  const DecoderConfig& config() const { return config_; }
  Parameters& parameters() { return *parameters_; }
  Updater& updater() { return *updater_; }
  /// Samples a completion for each prompt, as Rollout::complete.
  std::vector<Completion> complete(const std::vector<std::vector<int32_t>>& prompts, const std::vector<uint64_t>& seeds,
                                   const RolloutOptions& options);
  /// Prompts and their completions as a batch, for learn().
  PolicyBatch batch(const std::vector<std::vector<int32_t>>& prompts, const std::vector<Completion>& made,
                    const std::vector<double>& advantages) const;
  /// Does options.epochs updates with learning rate `lr` on a batch of options.prompts * options.group rows. Metrics of
  /// the last update: "loss", "grad_norm", "clipped_low", "clipped_high", and "kl" with a reference; "ratio_error" is
  /// of the first, before it.
  nlohmann::ordered_json learn(PolicyBatch& batch, double lr);
  /// The gradients for as many rows from `first` on as are computed at a time, with their inputs set.
  Gradients& ready(const PolicyBatch& batch, int64_t first);

 private:
  void update(const PolicyBatch& batch, double lr, nlohmann::ordered_json& metrics, bool first_epoch);
  Gradients& gradients_for(int64_t tokens, const SharedShape& shared);
  Executable& reference_for(int64_t tokens);
  void ask_reference(PolicyBatch& batch);
  int64_t rows() const { return o_.prompts * o_.group; }

  std::shared_ptr<Backend> backend_;
  const GrpoOptions& o_;
  TimeSpent& time_;
  bool shares_;                    ///< common beginnings of rows are computed once
  int64_t rows_at_a_time_;         ///< rows per gradient computation
  size_t most_plans_;              ///< each part of an update may have a length of its own, and epochs repeat all parts
  std::shared_ptr<Arena> arena_;   ///< shared by all training plans of any length
  DecoderConfig frozen_, config_;  ///< the model's; the trained network's
  std::unique_ptr<Parameters> parameters_;
  std::unique_ptr<Updater> updater_;
  std::unique_ptr<Rollout> rollout_;
  Recent<std::array<int64_t, 4>, std::unique_ptr<Gradients>> gradients_;  // by tokens of a row, and SharedShape
  std::optional<SharedTokens> ready_;                                     // the last batch part made ready
  std::shared_ptr<WeightStore> reference_;
  Recent<int64_t, std::unique_ptr<Executable>> reference_runs_;
};

}  // namespace tenon::train
