#include "tenon/train/policy_learner.h"

#include <algorithm>
#include <iterator>

#include "tenon/models/decoder_adapter.h"
#include "tenon/train/adapter.h"
#include "tenon/train/decoder_loss.h"

namespace tenon::train {
namespace {

constexpr int64_t kLengthStep = 16;  // plans are made for multiples of this many tokens
constexpr size_t kMostPlans = 8;     // of different lengths, each with an arena

}  // namespace

PolicyLearner::PolicyLearner(std::shared_ptr<Backend> backend, const LanguageModel& model, const GrpoOptions& options,
                             PhaseTimes& phases)
    : backend_(std::move(backend)), o_(options), phases_(phases), frozen_(model.config()), config_(model.config()) {
  config_.adapter = o_.adapter;
  const bool adapted = o_.adapter.rank > 0;
  const WeightShapes shapes = adapted ? adapter_weights(config_) : model.shapes();
  const std::shared_ptr<const WeightSource> source =
      adapted ? with_new_adapter(model.weights(), shapes, o_.seed) : model.weights();
  std::unique_ptr<Optimizer> optimizer = make_optimizer(o_.optimizer, backend_, o_.optimizer_options);
  parameters_ = std::make_unique<Parameters>(backend_, source, shapes, optimizer->moments().size(), o_.ema > 0);
  updater_ = std::make_unique<Updater>(*parameters_, std::move(optimizer), o_.clip, o_.ema);
  rollout_ = std::make_unique<Rollout>(parameters_->store(), config_, o_.precision);
  if (o_.terms.beta > 0)  // below an adapter lies the model as it was
    reference_ = adapted ? parameters_->store() : std::make_shared<WeightStore>(backend_, model.weights());
}

std::vector<Completion> PolicyLearner::complete(const std::vector<std::vector<int32_t>>& prompts,
                                                const std::vector<uint64_t>& seeds, const RolloutOptions& options) {
  phases_.enter("rollout");
  return rollout_->complete(prompts, seeds, options);
}

PolicyBatch PolicyLearner::batch(const std::vector<std::vector<int32_t>>& prompts, const std::vector<Completion>& made,
                                 const std::vector<double>& advantages) const {
  return {prompts, made, advantages, o_.mask_truncated, kLengthStep};
}

Gradients& PolicyLearner::gradients_for(int64_t tokens) {
  if (gradients_.size() >= kMostPlans && !gradients_.contains(tokens)) gradients_.clear();
  std::unique_ptr<Gradients>& made = gradients_[tokens];
  if (!made) {
    phases_.enter("plans");
    Graph g;
    const PolicyObjective objective{o_.loss, o_.terms, static_cast<double>(o_.most_tokens)};
    const Differentiated d = decoder_policy_loss(g, config_, {rows_at_a_time(), tokens}, objective, o_.precision);
    GradientOptions options{.accumulates = rows_at_a_time() < rows()};
    options.precision = training_precision(o_.precision.act);
    made = std::make_unique<Gradients>(*parameters_, d, options);
  }
  return *made;
}

void PolicyLearner::ask_reference(PolicyBatch& batch) {
  if (!reference_) return;
  if (reference_runs_.size() >= kMostPlans && !reference_runs_.contains(batch.tokens)) reference_runs_.clear();
  std::unique_ptr<Executable>& e = reference_runs_[batch.tokens];
  phases_.enter("reference");
  const BatchShape shape{rows(), batch.tokens};
  if (!e)
    e = std::make_unique<Executable>(plan_log_probabilities(frozen_, shape, o_.precision, backend_->target()),
                                     reference_);
  e->set("tokens", {DType::I32, {rows(), batch.tokens}, batch.ids.data()});
  e->set("target", {DType::I32, {rows(), batch.tokens}, batch.target.data()});
  e->run_all();
  batch.reference = e->get("nll");
  for (float& x : batch.reference) x = -x;
}

void PolicyLearner::update(const PolicyBatch& batch, double lr, nlohmann::ordered_json& metrics, bool first_epoch) {
  Gradients& run = gradients_for(batch.tokens);
  phases_.enter("gradients");
  const int64_t runs = rows() / rows_at_a_time();
  double loss = 0;
  std::vector<float> logp;
  for (int64_t r = 0; r < runs; ++r) {
    batch.give(run, r * rows_at_a_time(), rows_at_a_time(), o_.terms.beta > 0);
    if (o_.loss == nn::PolicyLoss::Dapo)
      run.set_scalar("tokens_of_update", static_cast<double>(batch.counted()) / static_cast<double>(runs));
    loss += run.run(r == 0) / static_cast<double>(runs);
    const std::vector<float> nll = run.get("nll");
    std::ranges::transform(nll, std::back_inserter(logp), [](float x) { return -x; });
  }
  if (first_epoch) metrics["ratio_error"] = batch.largest_ratio_error(logp);
  const PolicyFacts facts = batch.facts(logp, o_.terms);
  metrics["clipped_low"] = facts.clipped_low;
  metrics["clipped_high"] = facts.clipped_high;
  if (o_.terms.beta > 0) metrics["kl"] = facts.kl;
  phases_.enter("update");
  metrics["grad_norm"] = updater_->step(lr, runs).norm;
  metrics["loss"] = loss;
}

nlohmann::ordered_json PolicyLearner::learn(PolicyBatch& batch, double lr) {
  ask_reference(batch);
  nlohmann::ordered_json metrics;
  for (int64_t e = 0; e < o_.epochs; ++e) update(batch, lr, metrics, e == 0);
  return metrics;
}

}  // namespace tenon::train
