#include "tenon/train/policy_learner.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/core/not_null.h"
#include "tenon/core/text.h"
#include "tenon/models/decoder_adapter.h"
#include "tenon/train/adapter.h"

namespace tenon::train {
namespace {

constexpr size_t kLeastPlans = 8;  // kept at least, for different lengths
// On a processor the time is proportional to the number of tokens: common beginnings are computed once, large batches
// are split into equal parts of few rows, and plans are made for every multiple of 8 tokens. A device that records
// launches prefers few large ones: all rows at once, and fewer lengths.
constexpr int64_t kRowsOfProcessor = 16, kTokensOfProcessor = 4096, kStepOfProcessor = 8, kStepOfDevice = 16;

int64_t rows_at_a_time(const GrpoOptions& o, const Backend& backend) {
  const int64_t rows = o.prompts * o.group;
  if (o.micro_rows > 0) return o.micro_rows;
  // Bnpo averages over the tokens of a part, so a split would change the mean.
  if (backend.records() || o.loss == nn::PolicyLoss::Bnpo || rows * o.max_tokens <= kTokensOfProcessor) return rows;
  int64_t part = std::min(kRowsOfProcessor, rows);
  while (rows % part != 0) --part;
  return part;
}

bool shares(const Backend& backend) { return !backend.records(); }

PolicyBatch batch_of(const Backend& backend, const GrpoOptions& o, const std::vector<std::vector<int32_t>>& prompts,
                     const std::vector<Completion>& made, const std::vector<double>& advantages) {
  return shares(backend) ? PolicyBatch{prompts, made, advantages, o.mask_truncated, kStepOfProcessor, kMaxSharers}
                         : PolicyBatch{prompts, made, advantages, o.mask_truncated, kStepOfDevice};
}

BatchShape shape_of(const Backend& backend, const GrpoOptions& o, int64_t tokens) {
  return {.rows = rows_at_a_time(o, backend), .tokens = tokens, .logit_bytes = logit_bytes(backend, o.arena_bytes)};
}

Differentiated loss_of(Graph& g, const Backend& backend, const DecoderConfig& config, const GrpoOptions& o,
                       int64_t tokens, const SharedShape& shared) {
  const PolicyObjective objective{o.loss, o.terms, static_cast<double>(o.max_tokens)};
  return decoder_policy_loss(g, config, shape_of(backend, o, tokens), objective, o.precision, shared);
}

GradientOptions gradient_options(const Backend& backend, const GrpoOptions& o) {
  return {.precision = training_precision(o.precision.act),
          .accumulates = rows_at_a_time(o, backend) < o.prompts * o.group,
          .arena_bytes = o.arena_bytes};
}

std::vector<float> negative(std::vector<float> x) {
  for (float& v : x) v = -v;
  return x;
}

}  // namespace

void check_update_fits(const std::shared_ptr<Backend>& shared_backend, const LanguageModel& model,
                       const GrpoOptions& options, const std::vector<int32_t>& prompt) {
  const Backend& backend = *not_null(shared_backend, "backend");
  const auto rows = static_cast<size_t>(options.prompts * options.group);
  Completion shortest;
  shortest.tokens.assign(1, 0);
  shortest.log_probabilities.assign(1, 0);
  const PolicyBatch batch =
      batch_of(backend, options, std::vector(rows, prompt), std::vector(rows, shortest), std::vector<double>(rows, 0));
  const int64_t at_a_time = rows_at_a_time(options, backend);
  const SharedShape shared = shares(backend) ? SharedTokens(batch, 0, at_a_time).shape() : SharedShape();
  DecoderConfig config = model.config();
  config.adapter = options.adapter;
  const GradientOptions made = gradient_options(backend, options);
  Graph g;
  const Plan plan =
      plan_gradients(loss_of(g, backend, config, options, batch.width(0, at_a_time), shared), backend.target(), made);
  const size_t moments = make_optimizer(options.optimizer, shared_backend, options.optimizer_options)->moments().size(),
               sums = made.accumulates ? 1 : 0;  // as large as a moment
  const WeightShapes shapes = options.adapter.rank > 0 ? adapter_weights(config) : model.shapes();
  const int64_t kept = Parameters::bytes_needed(shapes, moments + sums, options.ema > 0),
                available = backend.memory_available();
  if (kept + plan.arena_bytes <= available) return;
  throw Error(ErrorKind::Memory, "training",
              "an update needs at least " + mebibytes(plan.arena_bytes) + " beside " + mebibytes(kept) +
                  " for masters, moments, averages and sums, but " + mebibytes(available) + " are available",
              options.arena_bytes == 0 ? "try --max-memory, which recomputes values that do not fit" : "");
}

PolicyLearner::PolicyLearner(std::shared_ptr<Backend> backend, const LanguageModel& model, const GrpoOptions& options,
                             TimeSpent& time)
    : backend_(not_null(std::move(backend), "backend")),
      o_(options),
      time_(time),
      shares_(shares(*backend_)),
      rows_at_a_time_(rows_at_a_time(o_, *backend_)),
      most_plans_(std::max(kLeastPlans, static_cast<size_t>(rows() / rows_at_a_time_))),
      arena_(std::make_shared<Arena>(backend_)),
      frozen_(model.config()),
      config_(model.config()),
      gradients_(most_plans_),
      reference_runs_(most_plans_) {
  config_.adapter = o_.adapter;
  const bool adapted = o_.adapter.rank > 0;
  const WeightShapes shapes = adapted ? adapter_weights(config_) : model.shapes();
  const std::shared_ptr<const WeightSource> source =
      adapted ? with_new_adapter(model.weights(), shapes, o_.seed) : model.weights();
  std::unique_ptr<Optimizer> optimizer = make_optimizer(o_.optimizer, backend_, o_.optimizer_options);
  parameters_ = std::make_unique<Parameters>(backend_, source, shapes, optimizer->moments().size(), o_.ema > 0);
  updater_ = std::make_unique<Updater>(*parameters_, std::move(optimizer), o_.clip, o_.ema);
  rollout_ = std::make_unique<Rollout>(parameters_->store(), config_, o_.precision);
  if (o_.terms.beta > 0)  // the frozen model under an adapter is the original one
    reference_ = adapted ? parameters_->store() : std::make_shared<WeightStore>(backend_, model.weights());
}

std::vector<Completion> PolicyLearner::complete(const std::vector<std::vector<int32_t>>& prompts,
                                                const std::vector<uint64_t>& seeds, const RolloutOptions& options) {
  return rollout_->complete(prompts, seeds, options);
}

PolicyBatch PolicyLearner::batch(const std::vector<std::vector<int32_t>>& prompts, const std::vector<Completion>& made,
                                 const std::vector<double>& advantages) const {
  return batch_of(*backend_, o_, prompts, made, advantages);
}

Gradients& PolicyLearner::gradients_for(int64_t tokens, const SharedShape& shared) {
  return *gradients_.get({tokens, shared.tokens, shared.targets, shared.texts}, [&] {
    time_.begin("plans");
    Graph g;
    GradientOptions options = gradient_options(*backend_, o_);
    options.arena = arena_;
    const Differentiated d = loss_of(g, *backend_, config_, o_, tokens, shared);
    return std::make_unique<Gradients>(*parameters_, d, options);
  });
}

Executable& PolicyLearner::reference_for(int64_t tokens) {
  return *reference_runs_.get(tokens, [&] {
    time_.begin("plans");
    return std::make_unique<Executable>(
        plan_log_probabilities(frozen_, shape_of(*backend_, o_, tokens), o_.precision, backend_->target()), reference_,
        std::map<std::string, void*>{}, nullptr, nullptr, arena_);
  });
}

void PolicyLearner::ask_reference(PolicyBatch& batch) {
  if (!reference_) return;
  batch.reference.assign(batch.ids.size(), 0);
  for (int64_t first = 0; first < rows(); first += rows_at_a_time_) {
    const Shape shape{rows_at_a_time_, batch.width(first, rows_at_a_time_)};
    const std::vector<int32_t> ids = batch.part(batch.ids, first, rows_at_a_time_),
                               target = batch.part(batch.target, first, rows_at_a_time_);
    Executable& e = reference_for(shape[1]);
    time_.begin("reference");
    e.set("tokens", {DType::I32, shape, ids.data()});
    e.set("target", {DType::I32, shape, target.data()});
    e.run_all();
    batch.put(negative(e.get("nll")), first, rows_at_a_time_, batch.reference);
  }
}

Gradients& PolicyLearner::ready(const PolicyBatch& batch, int64_t first) {
  ready_.reset();
  if (shares_) ready_.emplace(batch, first, rows_at_a_time_);
  Gradients& out = gradients_for(batch.width(first, rows_at_a_time_), ready_ ? ready_->shape() : SharedShape());
  if (ready_)
    ready_->give(out, o_.terms.beta > 0);
  else
    batch.give(out, first, rows_at_a_time_, o_.terms.beta > 0);
  return out;
}

void PolicyLearner::update(const PolicyBatch& batch, double lr, nlohmann::ordered_json& metrics, bool first_epoch) {
  const int64_t runs = rows() / rows_at_a_time_;
  double loss = 0;
  std::vector<float> logp(batch.ids.size());
  for (int64_t r = 0; r < runs; ++r) {
    const int64_t first = r * rows_at_a_time_;
    Gradients& run = ready(batch, first);
    time_.begin("gradients");
    if (o_.loss == nn::PolicyLoss::Dapo)
      run.set_scalar("tokens_of_update", static_cast<double>(batch.counted()) / static_cast<double>(runs));
    loss += run.run(r == 0) / static_cast<double>(runs);
    const std::vector<float> of_targets = negative(run.get("nll"));
    ready_ ? ready_->put(of_targets, logp) : batch.put(of_targets, first, rows_at_a_time_, logp);
  }
  if (first_epoch) metrics["ratio_error"] = batch.largest_ratio_error(logp);
  const PolicyFacts facts = batch.facts(logp, o_.terms);
  metrics["clipped_low"] = facts.clipped_low;
  metrics["clipped_high"] = facts.clipped_high;
  if (o_.terms.beta > 0) metrics["kl"] = facts.kl;
  time_.begin("update");
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
