#include "tenon/train/grpo.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tenon/core/clock.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/not_null.h"
#include "tenon/core/philox.h"
#include "tenon/core/stop.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/decode_step.h"
#include "tenon/models/decoder_adapter.h"
#include "tenon/train/adapter.h"
#include "tenon/train/metrics.h"
#include "tenon/train/policy_learner.h"
#include "tenon/train/rollout.h"
#include "tenon/train/row_seed.h"

namespace tenon::train {
namespace fs = std::filesystem;
namespace {
using nlohmann::ordered_json;

constexpr int64_t kMaxRows = int64_t{1} << 40;     // of a step; far more than fits into memory
constexpr int64_t kEvaluationRows = 16;            // evaluated together
constexpr double kMaxReward = 1e12;                // far below where a square overflows f32
constexpr int64_t kMaxCounted = int64_t{1} << 53;  // for totals over a run
constexpr const char *kEvaluationDue = "evaluation_due", *kEvaluatedOn = "evaluated_on";

ordered_json options_json(const GrpoOptions& o, const Backend& backend, const LanguageModel& model,
                          const ordered_json& data) {
  ordered_json out = recipe_json(o, backend);
  out.update({{"model", model.fingerprint()},
              {"data", data},
              {"prompts", o.prompts},
              {"group", o.group},
              {"epochs", o.epochs},
              {"micro_rows", o.micro_rows},
              {"most_tokens", o.max_tokens},
              {"loss", kLossNames.at(static_cast<size_t>(o.loss))},
              {"clip_low", o.terms.clip_low},
              {"clip_high", o.terms.clip_high},
              {"delta", o.terms.delta},
              {"beta", o.terms.beta},
              {"scale_rewards", o.scale == ScaleRewards::Group ? "group" : "none"},
              {"mask_truncated", o.mask_truncated},
              {"rewards", rewards_text(o.rewards)},
              {"system", o.system},
              {"adapter", {{"rank", o.adapter.rank}, {"scale", o.adapter.scale}, {"targets", o.adapter.targets}}},
              {"type", name_of(o.precision.act)}});
  return out;
}

std::vector<int32_t> prompt_ids(const LanguageModel& model, const GrpoOptions& o, const std::string& prompt) {
  const ByteLevelTokenizer& t = model.tokenizer();
  if (!t.chat_template()) return t.encode_whole(prompt);
  ordered_json messages = ordered_json::array();
  if (!o.system.empty()) messages.push_back({{"role", "system"}, {"content", o.system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return model.encode_chat(messages);
}

// A template may render the last message alone; without a template there is only the problem.
bool ignores_system(const LanguageModel& model, GrpoOptions o, const std::string& prompt) {
  if (o.system.empty()) return false;
  const std::vector<int32_t> with = prompt_ids(model, o, prompt);
  o.system.clear();
  try {
    return with == prompt_ids(model, o, prompt);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Cancelled) throw;
    return false;  // the template demands a system message
  }
}

bool has_room(const std::vector<int32_t>& ids, const LanguageModel& model, const GrpoOptions& o) {
  return !ids.empty() && o.max_tokens <= model.config().positions - std::ssize(ids);
}

std::string too_long(const std::vector<int32_t>& ids, const LanguageModel& model, const GrpoOptions& o) {
  return "has " + std::to_string(ids.size()) + " tokens; with " + std::to_string(o.max_tokens) +
         " for the answer that exceeds the model's " + std::to_string(model.config().positions) + " positions";
}

std::vector<int32_t> prompt_with_room(const Problem& problem, const LanguageModel& model, const GrpoOptions& o) {
  std::vector<int32_t> ids = prompt_ids(model, o, problem.prompt);
  TENON_CHECK(Usage, has_room(ids, model, o), "problem '" + problem.prompt.substr(0, 60) + "'")
      << too_long(ids, model, o);
  return ids;
}

// What a step needs at least, before any prompt is known: its completions' keys and values.
void check_rows_fit(const Backend& backend, const LanguageModel& model, const GrpoOptions& o) {
  const int64_t tokens = Rollout::capacity(1, o.max_tokens), available = backend.memory_available(),
                row_bytes = tokens * model.config().cache_bytes(o.precision.act),
                fit = std::min(available / row_bytes, max_decode_rows(model.config(), tokens)) / o.group;
  if (o.prompts <= fit) return;
  const double mebibytes = static_cast<double>(o.prompts * o.group) * static_cast<double>(row_bytes) / (1 << 20);
  throw Error(ErrorKind::Memory, "prompts",
              std::to_string(o.prompts) + " prompts of " + std::to_string(o.group) + " completions need " +
                  std::to_string(std::llround(mebibytes)) + " MiB for keys and values, " +
                  std::to_string(available >> 20) + " MiB are available",
              fit > 0 ? "at most " + std::to_string(fit) + " prompts fit"
                      : "use a smaller group: one prompt's group does not fit");
}

}  // namespace

struct Grpo::State {
  std::shared_ptr<Backend> backend;
  std::shared_ptr<const LanguageModel> model;
  GrpoData data;
  GrpoOptions o;
  RunFolder folder;
  TimeSpent time;
  PolicyLearner learner;
  CheckpointContent content;
  std::unique_ptr<MetricsLog> log;
  int64_t step = 0, problems = 0, best_step = -1;
  double best = -1;
  bool evaluation_due = false;  // of this step: the run was stopped before it

  State(std::shared_ptr<Backend> b, std::shared_ptr<const LanguageModel> m, GrpoData d, GrpoOptions options,
        const fs::path& output)
      : backend(std::move(b)),
        model(std::move(m)),
        data(std::move(d)),
        o(std::move(options)),
        folder(output),
        learner(backend, *model, o, time) {}

  ordered_json evaluated_on() const { return {{"data", data.about_held}, {"count", o.evaluate_count}}; }
  void prepare_content();
  bool adapted() const { return o.adapter.rank > 0; }
  void resume();
  void checkpoint();
  std::vector<int32_t> prompt_of(const Problem& problem) const;
  // With `metrics`, also stores the mean of each reward there if there are several.
  std::vector<Judgement> judge(const std::vector<Problem>& of_rows, const std::vector<Completion>& made,
                               ordered_json* metrics) const;
  ordered_json train_step();
  ordered_json evaluate();
};

namespace {
// A reward script gets these lists from the run itself.
void check_columns(const Problem& p) {
  if (p.columns.empty()) return;
  const nlohmann::json columns = parse_json(p.columns, p.place, ErrorKind::Usage);
  for (const char* key : {"prompts", "completions"})
    TENON_CHECK(Usage, !columns.contains(key), p.place)
        << "has the key '" << key << "', under which a reward script gets the run's own list; rename it";
}
}  // namespace

void check_problems(const std::vector<Problem>& rows, const LanguageModel& model, const GrpoOptions& options) {
  const Problem* first = nullptr;
  std::vector<int32_t> ids_of_first;
  int64_t count = 0;
  const bool scripts = std::ranges::any_of(options.rewards, [](const Reward& r) { return r.script != nullptr; });
  for (const Problem& p : rows) {
    check_stop("problems");
    if (scripts) check_columns(p);
    std::vector<int32_t> ids = prompt_ids(model, options, p.prompt);
    if (has_room(ids, model, options) || count++ > 0) continue;
    first = &p;
    ids_of_first = std::move(ids);
  }
  TENON_CHECK(Usage, count == 0, first->place)
      << too_long(ids_of_first, model, options) << " (" << count << " of " << rows.size() << " rows are too long)";
}

void check_grpo(const GrpoOptions& o) {
  const auto positive = [](const char* name, int64_t n) {
    TENON_CHECK(Usage, n >= 1, name) << n << ": expected 1 or more";
  };
  positive("prompts", o.prompts);
  positive("group", o.group);
  TENON_CHECK(Usage, o.prompts <= kMaxRows && o.group <= kMaxRows / o.prompts, "group")
      << o.prompts << " prompts of " << o.group << " completions: expected at most " << kMaxRows
      << " completions a step";
  TENON_CHECK(Usage, o.group > 1, "group")
      << "a group of one completion teaches nothing, because rewards are compared within groups: expected 2 or more";
  positive("epochs", o.epochs);
  positive("max tokens", o.max_tokens);
  positive("steps", o.schedule.steps);
  TENON_CHECK(Usage, o.micro_rows >= 0 && (o.micro_rows == 0 || (o.prompts * o.group) % o.micro_rows == 0),
              "micro rows")
      << o.micro_rows << ": expected a divisor of the " << o.prompts * o.group << " rows of a batch, or 0 (all)";
  TENON_CHECK(Usage, o.evaluate_every >= 0 && o.evaluate_count >= 0 && o.checkpoint_every >= 0 && o.keep >= 0, "grpo")
      << "expected counts of 0 or more";
  check_update(o.clip, o.ema);
  check_optimizer(o.optimizer_options);
  nn::check_policy(o.terms);
  check_schedule(o.schedule);
}

Grpo::Grpo(std::shared_ptr<Backend> backend, std::shared_ptr<const LanguageModel> model, GrpoData data,
           GrpoOptions options, const fs::path& output) {
  check_grpo(options);
  check_learns(*not_null(backend, "backend"));
  static_cast<void>(not_null(model, "model"));
  TENON_CHECK(Usage, data.train && (data.evaluation || options.evaluate_every == 0 || options.evaluate_count == 0),
              "problems")
      << "expected functions that give problems to train and to evaluate on";
  static_cast<void>(model->tokenizer());  // reports missing files before a folder is made; so does the adapter
  if (options.adapter.rank > 0) {
    DecoderConfig config = model->config();
    config.adapter = options.adapter;
    static_cast<void>(adapter_weights(config));
  }
  const Problem problem = data.train(0);
  const std::vector<int32_t> first = prompt_with_room(problem, *model, options);
  if (ignores_system(*model, options, problem.prompt))
    spdlog::warn("--system has no effect: prompts of {} are the same without it", model->name());
  check_rows_fit(*backend, *model, options);
  check_update_fits(backend, *model, options, first);
  state_ = std::make_unique<State>(std::move(backend), std::move(model), std::move(data), std::move(options), output);
  state_->prepare_content();
  state_->resume();
}
Grpo::~Grpo() = default;

int64_t Grpo::step() const { return state_->step; }
int64_t Grpo::parameter_count() const { return state_->learner.parameters().count(); }
int64_t Grpo::parameter_bytes() const { return state_->learner.parameters().bytes(); }

void Grpo::State::prepare_content() {
  if (adapted()) {
    content.file = {kAdapterWeights, kAdapterConfig, kAdapterPrefix};
    content.config = adapter_config(o.adapter, model->name());
    return;
  }
  content.config = model->saved_config();
  content.config["torch_dtype"] = "float32";
  content.config.erase("dtype");
  content.beside = model->saved_files();
}

void Grpo::State::resume() {
  const std::optional<Resumed> r =
      read_newest(folder, options_json(o, *backend, *model, data.about),
                  "belongs to a run with other options; choose another folder, or use the options in trainer.json",
                  content.file, learner.parameters(), learner.updater().optimizer());
  if (r) {
    step = r->step;
    ConfigReader run(r->run, folder.checkpoint(step).string() + " run");
    for (const char* key : {"problems", "best", "best_step", "updates"})
      if (!run.has(key)) run.refuse(key, "a value");
    problems = run.integer("problems", 0, 0, kMaxCounted);
    best = run.number("best", 0, -1, 1);
    best_step = run.integer("best_step", 0, -1, step);
    evaluation_due = run.flag(kEvaluationDue, false);
    // Not as ordered_json, which tells apart other orders of the same keys.
    if (r->run.contains(kEvaluatedOn) && r->run.at(kEvaluatedOn) != nlohmann::json(evaluated_on()))
      best = best_step = -1;
    learner.updater().set_steps(run.integer("updates", 0, 0, kMaxCounted));
  }
  std::vector<std::string> names{content.file.weights, content.file.config};
  for (const auto& [name, text] : content.beside) names.push_back(name);
  check_unused(folder.path(), names);
  log = std::make_unique<MetricsLog>(folder.path(), r ? step : -1,
                                     MetricsLogOptions{.events = o.tensorboard, .evaluation_due = evaluation_due});
}

void Grpo::State::checkpoint() {
  time.begin("checkpoints");
  content.step = step;
  content.run = {{"options", options_json(o, *backend, *model, data.about)},
                 {"updates", learner.updater().steps()},
                 {"problems", problems},
                 {"best", best},
                 {"best_step", best_step}};
  if (best_step >= 0) content.run[kEvaluatedOn] = evaluated_on();
  if (evaluation_due) content.run[kEvaluationDue] = true;
  write_checkpoint(folder, learner.parameters(), learner.updater().optimizer(), content, o.keep, {best_step});
}

std::vector<int32_t> Grpo::State::prompt_of(const Problem& problem) const {
  return prompt_with_room(problem, *model, o);
}

std::vector<Judgement> Grpo::State::judge(const std::vector<Problem>& of_rows, const std::vector<Completion>& made,
                                          ordered_json* metrics) const {
  std::vector<Judgement> out;
  for (const Completion& c : made) out.push_back({0, false, model->tokenizer().decode(c.tokens, true)});
  std::vector<Judged> rows;
  for (size_t r = 0; r < made.size(); ++r) {
    const Problem& p = of_rows[r];
    rows.push_back({out[r].text, p.answer, std::ssize(made[r].tokens), o.max_tokens, p.prompt, p.columns});
    out[r].right = reward_of(Reward{}, rows.back()) == 1;
  }
  if (!metrics) return out;
  for (const Reward& reward : o.rewards) {
    const std::vector<double> values = rewards_of(reward, rows, data.columns);
    for (size_t r = 0; r < values.size(); ++r) out[r].reward += reward.weight * values[r];
    if (o.rewards.size() > 1) (*metrics)["reward." + reward_name(reward)] = mean_of(values);
  }
  return out;
}

ordered_json Grpo::State::train_step() {
  const auto begin = Clock::now();
  time.begin("problems");
  std::vector<Problem> of_rows;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<uint64_t> seeds;
  for (int64_t p = 0; p < o.prompts; ++p) {
    const Problem problem = data.train(problems + p);
    for (int64_t i = 0; i < o.group; ++i) {
      of_rows.push_back(problem);
      prompts.push_back(prompt_of(problem));
      seeds.push_back(row_seed(o.seed, step, prompts.size()));
    }
  }
  time.begin("rollout");
  const std::vector<Completion> made = learner.complete(prompts, seeds, {o.max_tokens, false, model->stop_ids()});
  const double rollout_seconds = seconds_since(begin);
  const auto judging = Clock::now();
  time.begin("rewards");
  ordered_json m{{"step", step + 1}}, of_rewards = ordered_json::object();
  const std::vector<Judgement> judged = judge(of_rows, made, &of_rewards);
  const double reward_seconds = seconds_since(judging);
  std::vector<double> rewards;
  for (const Judgement& j : judged) {
    TENON_CHECK(Numeric, std::abs(j.reward) <= kMaxReward, "reward")
        << "the weighted reward of completion " << rewards.size() << " is " << j.reward << ", expected " << -kMaxReward
        << " to " << kMaxReward;
    rewards.push_back(j.reward);
  }
  PolicyBatch batch = learner.batch(prompts, made, advantages(rewards, o.group, o.scale));
  const auto updating = Clock::now();
  const double lr = o.schedule.rate(step + 1);
  batch_metrics(judged, made, o.group, m);
  m.update(of_rewards);
  m.update(learner.learn(batch, lr));
  problems += o.prompts;  // an interrupted step takes the same ones again
  m["lr"] = lr;
  m["rollout_seconds"] = rollout_seconds;
  m["reward_seconds"] = reward_seconds;
  m["update_seconds"] = seconds_since(updating);
  return m;
}

ordered_json Grpo::State::evaluate() {
  int64_t right = 0, ended = 0;
  const auto begin = Clock::now();
  time.begin("evaluation");
  learner.parameters().with_averages([&] {
    for (int64_t at = 0; at < o.evaluate_count; at += kEvaluationRows) {
      std::vector<Problem> problems_of_rows;
      std::vector<std::vector<int32_t>> prompts;
      for (int64_t i = 0; i < kEvaluationRows; ++i) {  // the last batch is padded: one shape, one plan
        problems_of_rows.push_back(data.evaluation(std::min(at + i, o.evaluate_count - 1)));
        prompts.push_back(prompt_of(problems_of_rows.back()));
      }
      const std::vector<uint64_t> seeds(prompts.size(), 0);
      const auto made = learner.complete(prompts, seeds, {o.max_tokens, true, model->stop_ids()});
      const std::vector<Judgement> judged = judge(problems_of_rows, made, nullptr);
      for (int64_t i = 0; i < std::min(kEvaluationRows, o.evaluate_count - at); ++i) {
        right += judged[static_cast<size_t>(i)].right;
        ended += made[static_cast<size_t>(i)].ended;
      }
    }
  });
  const auto count = static_cast<double>(o.evaluate_count);
  return {{"step", step},
          {"exact_match", static_cast<double>(right) / count},
          {"ended", static_cast<double>(ended) / count},
          {"count", o.evaluate_count},
          {"evaluation_seconds", seconds_since(begin)}};
}

const TimeSpent& Grpo::time_spent() const { return state_->time; }

bool Grpo::run(const OnMetrics& each, const std::function<bool()>& stop) {
  State& s = *state_;
  const auto tell = [&](const ordered_json& m) {
    s.time.begin("metrics");
    s.log->add(m);
    if (each) each(m);
  };
  const auto evaluated = [&] {
    s.evaluation_due = false;
    const ordered_json m = s.evaluate();
    tell(m);
    if (m.at("exact_match").get<double>() > s.best) {
      s.best = m.at("exact_match");
      s.best_step = s.step;
      s.checkpoint();
    }
  };
  const bool evaluates = s.o.evaluate_every > 0 && s.o.evaluate_count > 0;
  const auto evaluates_now = [&] {
    return evaluates && (s.step == s.o.schedule.steps || s.step % s.o.evaluate_every == 0);
  };
  if (!evaluates_now()) s.evaluation_due = false;  // no longer asked for
  if (s.step == 0 && s.folder.steps().empty()) {
    if (evaluates) evaluated();
    if (s.folder.steps().empty()) s.checkpoint();
  } else if (s.evaluation_due) {
    evaluated();
    if (s.best_step != s.step) s.checkpoint();
  }
  while (s.step < s.o.schedule.steps) {
    const ordered_json m = named_step(s.folder, s.step + 1, [&] { return s.train_step(); });
    ++s.step;
    tell(m);
    const bool last = s.step == s.o.schedule.steps, stopped = stop && stop();
    s.evaluation_due = stopped && evaluates_now();
    if (!stopped && evaluates_now()) evaluated();
    const bool due = last || stopped || (s.o.checkpoint_every > 0 && s.step % s.o.checkpoint_every == 0);
    if (due && (s.folder.steps().empty() || s.folder.steps().back() != s.step)) s.checkpoint();
    if (stopped) break;
  }
  const bool whole =
      s.step >= s.o.schedule.steps && !s.evaluation_due;  // a folder may already have more steps than requested
  s.time.begin("checkpoints");
  if (whole) write_model(s.folder.path(), s.learner.parameters(), s.content);
  s.time.begin("");
  return whole;
}

}  // namespace tenon::train
