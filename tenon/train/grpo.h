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
#include "tenon/train/grpo_options.h"
#include "tenon/train/problems.h"
#include "tenon/train/time_spent.h"

namespace tenon::train {

/// Where problems come from, and those for evaluation.
struct GrpoData {
  ProblemAt train, evaluation;
  nlohmann::ordered_json about;  ///< what a checkpoint remembers of it
};

/// Error(Usage) for rows whose prompts have no room in the model beside a completion: how many there are, and where the
/// first one stands. Asks check_stop().
void check_problems(const std::vector<Problem>& rows, const LanguageModel& model, const GrpoOptions& options);

/// One run over a folder. What is random is drawn from the seed, the step and the row, so that a run that goes on from
/// a checkpoint gives the bits of one that was never stopped.
class Grpo {
 public:
  /// Goes on from the folder's last checkpoint if there is one. Error(Usage): another run has the folder, or a
  /// checkpoint of other options; Error(Model); Error(Memory), also for more completions a step than there is room for
  /// keys and values of, which says how many prompts fit.
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
  /// Where the time of run() went so far.
  const TimeSpent& time_spent() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenon::train
