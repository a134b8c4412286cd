// GRPO and its variants: completions are sampled, scored, and made more or less likely. A step: `prompts` problems,
// `group` completions each, rewards, advantages within a group, and `epochs` updates on the same batch.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tenon/pipelines/language_model.h"
#include "tenon/train/checkpoint.h"
#include "tenon/train/grpo_options.h"
#include "tenon/train/problems.h"
#include "tenon/train/time_spent.h"

namespace tenon::train {

/// Problems for training and for evaluation.
struct GrpoData {
  ProblemAt train, evaluation;
  nlohmann::ordered_json about;       ///< description of the training data for checkpoints: a run has one
  nlohmann::ordered_json about_held;  ///< and of the evaluation data: the best step is counted anew for other data
  std::set<std::string> columns{};    ///< column_names of the training data: a reward script gets all in every call
};

/// Error(Usage) for prompts that leave no room for a completion in the model: says how many, and where the first one
/// is. Asks check_stop().
void check_problems(const std::vector<Problem>& rows, const LanguageModel& model, const GrpoOptions& options);

/// One run in a folder. Everything random is drawn from the seed, the step and the row, so that a run resumed from a
/// checkpoint is bit-identical to one that was never stopped.
class Grpo {
 public:
  /// Resumes from the folder's last checkpoint if there is one. Error(Usage): another run holds the folder, or the
  /// checkpoint has other options; Error(Model); Error(Memory), also if the keys and values of a step's completions do
  /// not fit (says how many prompts do).
  Grpo(std::shared_ptr<Backend> backend, std::shared_ptr<const LanguageModel> model, GrpoData data, GrpoOptions options,
       const std::filesystem::path& output);
  ~Grpo();
  Grpo(const Grpo&) = delete;
  Grpo& operator=(const Grpo&) = delete;

  /// Called with the metrics of a step or an evaluation, as in metrics.jsonl.
  using OnMetrics = std::function<void(const nlohmann::ordered_json&)>;
  /// Trains to the schedule's last step and returns true, or until `stop` returns true after a step: then it writes a
  /// checkpoint of that step and returns false. Error(Numeric) names the step of a loss or gradient that is not finite;
  /// the last checkpoint remains. At the end the folder holds the model in transformers' format.
  bool run(const OnMetrics& each, const std::function<bool()>& stop);

  int64_t step() const;
  /// Number of trained elements; bytes of these, moments, averages and sums of gradients.
  int64_t parameter_count() const;
  int64_t parameter_bytes() const;
  /// How the time of run() was spent so far.
  const TimeSpent& time_spent() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenon::train
