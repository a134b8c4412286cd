// tenon train grpo: trains a language model on rewards.
#include "apps/cli/train.h"

#include <algorithm>
#include <cstdio>

#include "apps/cli/parts.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/models/decoder_adapter.h"
#include "tenon/pipelines/text_generator.h"
#include "tenon/train/grpo.h"
#include "tenon/train/metrics.h"

namespace tenon::cli {
namespace {
using nlohmann::ordered_json;

const std::vector<std::string> kGrpoTypes{"f32", "bf16"};

struct TrainFlags {
  train::GrpoOptions o;
  std::string model, data, evaluation, dataset, output = "grpo", loss = "dr_grpo", scale = "none", decay = "constant",
                                                type;
  std::vector<std::string> rewards{"exact"};
  std::vector<double> weights;
  double clip_high = 0, reward_seconds = 60, lora_alpha = 0;
  int64_t memory = 0;
  bool profile = false;
  const CLI::App* app = nullptr;
};

void declare_what(CLI::App& app, TrainFlags& f) {
  offer(app.add_option("-m,--model", f.model,
                       "language model: a folder, a GGUF file, or a name in TENON_MODEL_DIR (default: the embedded "
                       "one, by default with --dataset sums --steps 40 --prompts 8 --epochs 1 --beta 0 --lr 1e-4 "
                       "--lr-scheduler linear --eval-every 10 --eval-count 200)"),
        model_names(TextGenerator::kAbility), Beside::Files);
  offer(app.add_option("--data", f.data,
                       "training problems: a JSON Lines file with \"prompt\" or \"question\", and \"answer\""),
        {}, Beside::Files);
  offer(app.add_option(both_spellings("eval_data"), f.evaluation,
                       "evaluation problems, in the same format (default: no evaluation)"),
        {}, Beside::Files);
  only(app.add_option("--dataset", f.dataset, "built-in problem generator to use instead of --data"), {"sums"});
  app.add_option("-o,--output", f.output,
                 "folder for checkpoints, metrics and the trained model; a run that is already in it is resumed")
      ->capture_default_str();
  offer(several(app.add_option(
            "--reward", f.rewards,
            "score of a completion: exact (correct answer), compat (the same by an older pattern, and 0.1 for any "
            "other answer), format (last line \"#### NUMBER\"), length (shorter is better), or a Python script that "
            "defines reward(prompts, completions, **columns); may be repeated: scores are added up")),
        {"exact", "compat", "format", "length"}, Beside::Files)
      ->default_str("exact");
  comma_list(app, both_spellings("reward_weights"), f.weights,
             "weight of each --reward, such as 1,0.5 (default: 1 each)");
  app.add_option(both_spellings("reward_timeout"), f.reward_seconds,
                 "time limit for each call of a reward script, in seconds (its import: at least 60)")
      ->capture_default_str();
  app.add_flag("--tensorboard", f.o.tensorboard, "also write metrics as a TensorBoard event file");
  app.add_flag("--profile", f.profile, "report at the end where the time went");
  app.add_option("--system", f.o.system, "system message in front of each problem (default: none)");
}

void declare_recipe(CLI::App& app, TrainFlags& f) {
  train::GrpoOptions& o = f.o;
  declare_count(app, "--steps", o.schedule.steps, "training steps of the whole run", 1);
  declare_count(app, "--prompts", o.prompts, "problems per step", 1);
  declare_count(app, "--group", o.group, "completions sampled per problem", 1);
  declare_count(app, "--epochs", o.epochs, "updates on each step's completions", 1);
  declare_count(app, both_spellings("micro_rows"), o.micro_rows,
                "completions per micro-batch of gradients; 0: all on a GPU; on a CPU all if they have room for at most "
                "4096 tokens, and with --loss bnpo, else the largest divisor of their number up to 16",
                0);
  declare_count(app, both_spellings("max_memory"), f.memory,
                "memory limit for an update's values in MiB; values that do not fit are recomputed; 0: no limit", 0);
  declare_count(app, both_spellings("max_tokens"), o.max_tokens, "maximum number of tokens per completion", 1);
  declare_warm_up(app, o.schedule.warm_up);
  declare_count(app, both_spellings("eval_every"), o.evaluate_every, "steps between evaluations; 0: never evaluate", 0);
  declare_count(app, both_spellings("eval_count"), o.evaluate_count,
                "problems per evaluation (default: all of --eval-data, 64 of a generator)", 1);
  app.get_option("--eval-count")->default_str("");
  declare_count(app, both_spellings("checkpoint_every"), o.checkpoint_every,
                "steps between checkpoints; 0: only at the end", 0);
  declare_count(app, "--keep", o.keep, "newest checkpoints to keep, besides the best; 0: all", 0);
  declare_seed(app, o.seed, "random seed for completions and the order of problems");
  app.add_option(both_spellings("learning_rate") + ",--lr", o.schedule.peak, "peak learning rate")
      ->capture_default_str();
  only(app.add_option(both_spellings("lr_scheduler"), f.decay,
                      "how the learning rate changes after warm-up: constant, or linear or cosine decay to 0, which "
                      "depend on --steps (without -m by default linear)"),
       train::decay_names())
      ->capture_default_str();
  only(app.add_option("--optimizer", o.optimizer, "optimizer"), optimizer_names())->capture_default_str();
  app.add_option(both_spellings("weight_decay"), o.optimizer_options.weight_decay, "weight decay")
      ->capture_default_str();
  app.add_option(
         "--ema", o.ema,
         "decay per update of a moving average of the weights; the average is evaluated and written; 0: no average")
      ->capture_default_str();
  app.add_option(both_spellings("max_grad_norm"), o.clip, "clip gradients to this norm; 0: no clipping")
      ->capture_default_str();
}

void declare_adapter(CLI::App& app, TrainFlags& f) {
  nn::LowRank& a = f.o.adapter;
  declare_count(app, "--lora", a.rank,
                "train a low-rank adapter (LoRA) of this rank instead of all weights; 0: train all weights", 0);
  app.add_option(both_spellings("lora_alpha"), f.lora_alpha, "scale the adapter by this / rank (default: the rank)");
  a.targets = adapter_layers();
  comma_list(app, both_spellings("lora_targets"), a.targets,
             "layers to adapt, such as q_proj,v_proj (default: all linear layers)")
      ->default_str("");
}

void declare_loss(CLI::App& app, TrainFlags& f) {
  train::GrpoOptions& o = f.o;
  only(
      app.add_option("--loss", f.loss,
                     "policy loss, which sets each token's weight: dr_grpo: 1 / (completions * longest); grpo: 1 / "
                     "(completions * own length); bnpo: 1 / tokens of the micro-batch; dapo: 1 / tokens of the update"),
      {train::kLossNames.begin(), train::kLossNames.end()})
      ->capture_default_str();
  only(app.add_option(both_spellings("scale_rewards"), f.scale,
                      "divide advantages by the standard deviation of their group's rewards (group), or not (none)"),
       {"none", "group"})
      ->capture_default_str();
  app.add_option(both_spellings("clip_low"), o.terms.clip_low, "clip the probability ratio from below at 1 - this")
      ->capture_default_str();
  app.add_option(both_spellings("clip_high"), f.clip_high,
                 "clip the probability ratio from above at 1 + this (default: the value of --clip-low)");
  app.add_option("--delta", o.terms.delta, "upper bound of the ratio in the unclipped term; 0: none")
      ->capture_default_str();
  app.add_option("--beta", o.terms.beta,
                 "weight of the KL divergence from the initial model; 0: none (the default without -m)")
      ->capture_default_str();
  app.add_flag(both_spellings("mask_truncated"), o.mask_truncated,
               "do not learn from completions cut off before an end token");
}

train::GrpoOptions options_of(const TrainFlags& f, const Backend& backend) {
  train::GrpoOptions o = f.o;
  const auto* const loss = std::ranges::find(train::kLossNames, f.loss);  // `only` has checked it
  o.loss = static_cast<nn::PolicyLoss>(loss - train::kLossNames.begin());
  o.arena_bytes = f.memory << 20;
  o.scale = f.scale == "group" ? train::ScaleRewards::Group : train::ScaleRewards::None;
  o.terms.clip_high = f.app->count("--clip-high") > 0 ? f.clip_high : o.terms.clip_low;
  o.rewards = train::parse_rewards(f.rewards, f.weights, f.reward_seconds);
  o.schedule.decay = train::decay_of(f.decay);
  for (const char* flag : {"--lora-alpha", "--lora-targets"})
    TENON_CHECK(Usage, o.adapter.rank > 0 || f.app->count(flag) == 0, flag) << "needs --lora RANK";
  if (f.app->count("--lora-alpha") > 0) o.adapter.scale = f.lora_alpha / static_cast<double>(o.adapter.rank);
  const DType type = training_type(f.type, kGrpoTypes, "language models are trained in f32 or bf16", backend);
  o.precision = {type, type};
  return o;
}

std::vector<Problem> problems_of(const std::string& file, const LanguageModel& model, const train::GrpoOptions& o) {
  std::vector<Problem> rows = train::read_problems(file);
  train::check_problems(rows, model, o);
  return rows;
}

// Answers without a number never equal a completion's.
void check_answers(const std::string& file, const std::vector<Problem>& rows, bool needed) {
  const auto none = std::ranges::count_if(
      rows, [](const Problem& p) { return !train::gold_answer(p.answer, train::Extractor::Robust); });
  if (none == 0) return;
  TENON_CHECK(Usage, !needed || none < std::ssize(rows), file)
      << "no answer is a number or has one after ####, so that no completion could be rewarded";
  spdlog::warn("{}: {} of {} answers are no number and have none after ####: no completion counts as correct for them",
               escaped(file), none, rows.size());
}

bool compares_answers(const train::Reward& r) {
  return r.kind == train::Reward::Kind::Exact || r.kind == train::Reward::Kind::Compat;
}

train::GrpoData data_of(const TrainFlags& f, const LanguageModel& model, train::GrpoOptions& o) {
  TENON_CHECK(Usage, f.data.empty() != f.dataset.empty(), "data")
      << (f.data.empty() ? "missing: --data FILE.jsonl or --dataset sums" : "given twice: --data and --dataset");
  TENON_CHECK(Usage, f.evaluation.empty() || f.dataset.empty(), "--eval-data")
      << "needs --data: --dataset holds out its own evaluation problems";
  if (!f.dataset.empty()) {
    const auto problems = [seed = o.seed](SumsSplit split) -> train::ProblemAt {
      return [=](int64_t k) { return sums_problem(seed, k, split); };
    };
    const ordered_json about{{"dataset", f.dataset}};
    return {problems(SumsSplit::Train), problems(SumsSplit::HeldOut), about, about};
  }
  std::vector<Problem> rows = problems_of(f.data, model, o);
  if (std::ranges::any_of(o.rewards, compares_answers))
    check_answers(f.data, rows, std::ranges::all_of(o.rewards, compares_answers));
  const ordered_json about{{"data", sha256_file(f.data)}};
  ordered_json about_held;
  train::ProblemAt evaluation;
  if (f.evaluation.empty()) {
    o.evaluate_every = 0;
    spdlog::info("no --eval-data given: the model will not be evaluated");
  } else {
    std::vector<Problem> held = problems_of(f.evaluation, model, o);
    check_answers(f.evaluation, held, false);
    about_held["data"] = sha256_file(f.evaluation);
    if (f.app->count("--eval-count") == 0 || o.evaluate_count > std::ssize(held)) o.evaluate_count = std::ssize(held);
    evaluation = [held = std::move(held)](int64_t k) { return held[static_cast<size_t>(k) % held.size()]; };
  }
  std::set<std::string> columns;
  if (std::ranges::any_of(o.rewards, [](const train::Reward& r) { return r.script != nullptr; }))
    columns = train::column_names(rows);
  return {train::shuffled(std::move(rows), o.seed), evaluation, about, about_held, std::move(columns)};
}

std::string step_text(const ordered_json& m) {
  char text[256];
  const auto number = [&](const char* key) { return m.at(key).get<double>(); };
  if (train::is_evaluation(m))
    std::snprintf(text, sizeof text, "%.1f %% of %lld correct", 100 * number("exact_match"),
                  m.at("count").get<long long>());
  else
    std::snprintf(text, sizeof text, "loss %.4f  reward %.3f  norm %.3g  |ratio-1| %.1e  rollout %.2f s  update %.2f s",
                  number("loss"), number("reward"), number("grad_norm"), number("ratio_error"),
                  number("rollout_seconds"), number("update_seconds"));
  return text;
}

// Without a model: the embedded one, with defaults that suit it.
void take_embedded(TrainFlags& f) {
  if (!f.model.empty()) return;
  f.model = TextGenerator::kAbility.embedded;
  if (f.data.empty() && f.dataset.empty()) f.dataset = "sums";
  const auto suit = [&](const char* flag, auto& value, auto better) {
    if (f.app->count(flag) == 0) value = better;
  };
  suit("--steps", f.o.schedule.steps, 40);
  suit("--prompts", f.o.prompts, 8);
  suit("--epochs", f.o.epochs, 1);
  suit("--beta", f.o.terms.beta, 0.0);
  suit("--learning-rate", f.o.schedule.peak, 1e-4);
  suit("--lr-scheduler", f.decay, "linear");
  suit("--eval-every", f.o.evaluate_every, 10);
  suit("--eval-count", f.o.evaluate_count, 200);
}

int run_train(TrainFlags f, const Common& common) {
  take_embedded(f);
  const std::shared_ptr<Backend> backend = common.backend({.one_order = true});  // a rollout computes training's bits
  train::GrpoOptions o = options_of(f, *backend);
  train::check_grpo(o);
  const auto model = LanguageModel::open(f.model);
  if (f.app->count("--max-tokens") == 0)  // so that room for a prompt remains
    o.max_tokens = std::min(o.max_tokens, std::max<int64_t>(model->config().positions / 2, 1));
  train::GrpoData data = data_of(f, *model, o);
  train::Grpo grpo(backend, model, std::move(data), o, f.output);
  spdlog::info("{} trained parameters, {:.1f} MB with moments and averages", grpo.parameter_count(),
               static_cast<double>(grpo.parameter_bytes()) / 1e6);
  if (grpo.step() > 0) spdlog::info("resuming after step {}", grpo.step());
  const int64_t first = grpo.step();
  const int code = run_training(common, {first, o.schedule.steps, f.output, step_text}, grpo);
  if (f.profile) std::cerr << grpo.time_spent().table(grpo.step() - first);
  return code;
}

}  // namespace

Action declare_train_grpo(CLI::App& app, const Common& common) {
  const auto f = std::make_shared<TrainFlags>();
  f->app = &app;
  declare_what(app, *f);
  declare_recipe(app, *f);
  declare_adapter(app, *f);
  declare_loss(app, *f);
  declare_training_type(app, f->type, kGrpoTypes);
  return [f, &common] { return run_train(*f, common); };
}

}  // namespace tenon::cli
