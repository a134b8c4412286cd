// Completions, and whole runs of a tiny model with meaningless texts.
#include "tenon/train/grpo.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "tenon/core/error.h"
#include "tenon/io/files.h"
#include "tenon/models/decoder_adapter.h"
#include "tenon/pipelines/text_generator.h"
#include "tenon/train/decoder_loss.h"
#include "tenon/train/policy_learner.h"
#include "tests/language/language_fixtures.h"
#include "tests/support/isa_backend.h"
#include "tests/support/sanitized.h"
#include "tests/train/tiny_runs.h"

namespace tenon::train {
namespace {
using nlohmann::ordered_json;

// One row of a batch, by rollout and by the generator that `complete` uses: the same tokens and probabilities.
TEST(Rollout, GreedyIsWhatTheGeneratorWrites) {
  for (const size_t number : {0U, 2U}) {
    const auto model = tiny_model(number);
    const std::shared_ptr<Backend> backend = make_backend("cpu");
    Rollout rollout(std::make_shared<WeightStore>(backend, model->weights()), model->config(), nn::kF32);
    std::vector<std::vector<int32_t>> prompts;
    for (const int64_t n : {3, 23, 9}) {
      prompts.emplace_back();
      for (int64_t i = 0; i < n; ++i) prompts.back().push_back(static_cast<int32_t>((37 * i * i + 11 * n + 5) % 894));
    }
    const auto made = rollout.complete(prompts, {0, 0, 0}, {20, true, model->stop_ids()});
    const auto generator = make_text_generator(model, language_test::f32_options());
    for (size_t r = 0; r < prompts.size(); ++r) {
      TextRequest request;
      request.prompt = prompts[r];
      request.max_tokens = 20;
      const TextResult want = generator->generate(request);
      ASSERT_EQ(made[r].tokens.size(), want.tokens.size()) << r;
      for (size_t i = 0; i < want.tokens.size(); ++i) {
        EXPECT_EQ(made[r].tokens[i], want.tokens[i].id) << r << " " << i;
        EXPECT_NEAR(made[r].log_probabilities[i], want.tokens[i].log_probability, 1e-4);
      }
      EXPECT_EQ(made[r].ended, want.end == TextEnd::StopToken);
    }
  }
}

// Before the first update training computes bit-identical probabilities to those that tokens were drawn with: for
// single tokens of each row over a cache, or whole rows, whatever their number and lengths and whatever else is in the
// batch.
void expect_the_same_probabilities(const LanguageModel& model, const std::vector<int64_t>& lengths, int64_t most) {
  const std::shared_ptr<Backend> backend = make_backend("cpu");
  Parameters parameters(backend, model.weights(), model.shapes(), 0);
  Rollout rollout(parameters.store(), model.config(), nn::kF32);
  std::vector<std::vector<int32_t>> prompts;
  std::vector<uint64_t> seeds;
  for (const int64_t n : lengths) {
    seeds.push_back(prompts.size() + 1);
    prompts.emplace_back();
    for (int64_t i = 0; i < n; ++i) prompts.back().push_back(static_cast<int32_t>((31 * i * i + 7 * n) % 894));
  }
  const auto made = rollout.complete(prompts, seeds, {most, false, {}});
  const PolicyBatch batch(prompts, made, std::vector<double>(prompts.size(), 1), false, 16);
  for (const int64_t rows : {std::ssize(prompts), std::ptrdiff_t{1}}) {
    std::vector<float> logp(batch.ids.size());
    for (int64_t first = 0; first < batch.rows; first += rows) {
      Graph g;
      const BatchShape shape{rows, batch.width(first, rows), 48};
      Gradients gradients(parameters, decoder_policy_loss(g, model.config(), shape, {}, nn::kF32));
      batch.give(gradients, first, rows, false);
      gradients.run();
      std::vector<float> nll = gradients.get("nll");
      for (float& x : nll) x = -x;
      batch.put(nll, first, rows, logp);
    }
    EXPECT_EQ(batch.largest_ratio_error(logp), 0) << prompts.size() << " rows, " << rows << " at a time";
  }
  EXPECT_EQ(batch.counted(), std::ssize(prompts) * most);
}

TEST(Rollout, TrainingSeesTheSameProbabilities) {
  for (const size_t number : {0U, 2U}) expect_the_same_probabilities(*tiny_model(number), {3}, 5);
  expect_the_same_probabilities(*tiny_model(), {3, 7, 40, 18, 33}, 20);
  expect_the_same_probabilities(*tiny_model(), {250, 300}, 30);  // keys in more than one block
}

// That a system message has an effect is found out without one, which such a template refuses.
TEST(Grpo, ATemplateMayDemandASystemMessage) {
  const language_test::Folder of_model, run;
  language_test::write_model(language_test::recorded()["cases"][0], of_model);
  const std::string text =
      "{% if messages[0].role != 'system' %}{{ raise_exception('needs a system message') }}{% endif %}"
      "{% for m in messages %}{{ m.content }}{% endfor %}";
  of_model.write("tokenizer_config.json", nlohmann::json{{"chat_template", text}}.dump());
  const auto model = LanguageModel::open(of_model.path().string());
  GrpoOptions o = quick_options();
  const auto start = [&] { const Grpo grpo(make_backend("cpu"), model, sums(), o, run.path() / "run"); };
  try {
    start();
    ADD_FAILURE() << "not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Usage);
    EXPECT_NE(std::string(e.what()).find("needs a system message"), std::string::npos) << e.what();
  }
  o.system = "Add.";
  EXPECT_NO_THROW(start());
}

// Room for masters and moments, not for the gradients: said before anything is made, whether or not there is a limit.
TEST(Grpo, AnUpdateThatCannotFitIsRefusedAtOnce) {
  struct Small : IsaBackend {
    explicit Small(int64_t bytes) : IsaBackend(cpu::Isa::Avx2, 1), room(bytes) {}
    int64_t memory_available() const override { return room; }
    int64_t room;
  };
  const language_test::Folder folder;
  const auto start = [&](int64_t room, int64_t limit) {
    GrpoOptions o = quick_options();
    o.arena_bytes = limit;
    Grpo(std::make_shared<Small>(room), tiny_model(), sums(), o, folder.path() / "run");
  };
  const int64_t kept = Parameters::bytes_needed(tiny_model()->shapes(), 2, false);
  for (const int64_t limit : {int64_t{0}, int64_t{1} << 30}) {
    try {
      start(kept + (1 << 16), limit);
      ADD_FAILURE() << "started";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Memory);
      EXPECT_THAT(e.what(), testing::HasSubstr("an update needs at least "));
      EXPECT_EQ(std::string(e.what()).find("--max-memory") != std::string::npos, limit == 0) << e.what();
    }
    EXPECT_FALSE(file_exists(folder.path() / "run"));
  }
  start(kept + (int64_t{1} << 30), 0);
}

// Shorter is better: the model learns to end.
TEST(Grpo, RewardRises) {
  for (const nn::PolicyLoss kind :
       {nn::PolicyLoss::DrGrpo, nn::PolicyLoss::Grpo, nn::PolicyLoss::Bnpo, nn::PolicyLoss::Dapo}) {
    const language_test::Folder folder;
    GrpoOptions o = quick_options();
    o.loss = kind;
    o.micro_rows = kind == nn::PolicyLoss::Dapo ? 4 : 0;
    const auto metrics = train(o, folder.path());
    ASSERT_EQ(metrics.size(), 24U);
    for (const ordered_json& m : metrics) EXPECT_EQ(m.at("ratio_error").get<double>(), 0) << m.at("step");
    double first = 0, last = 0;
    for (size_t i = 0; i < 4; ++i) {
      first += metrics[i].at("reward").get<double>() / 4;
      last += metrics[metrics.size() - 1 - i].at("reward").get<double>() / 4;
    }
    EXPECT_GT(last, first + 0.3) << static_cast<int>(kind);
    EXPECT_TRUE(file_exists(folder.path() / "model.safetensors"));
    EXPECT_EQ(LanguageModel::open(folder.path().string())->config().layers, tiny_model()->config().layers);
  }
}

ordered_json without_times(ordered_json m) {
  for (const char* key : {"rollout_seconds", "reward_seconds", "update_seconds", "evaluation_seconds"}) m.erase(key);
  return m;
}

// Fractions of a number of rows whose reciprocal is inexact: all of them give exactly 1, and equal rewards their mean.
TEST(Grpo, SharesOfABatch) {
  for (const size_t rows : {6U, 9U, 49U}) {
    ordered_json metrics;
    batch_metrics(std::vector<Judgement>(rows, {0.1, true, ""}), std::vector<Completion>(rows), 1, metrics);
    EXPECT_EQ(metrics.at("truncated"), 1.0) << rows;
    EXPECT_EQ(metrics.at("exact_match"), 1.0) << rows;
    EXPECT_EQ(metrics.at("reward"), 0.1) << rows;
    EXPECT_EQ(metrics.at("reward_std"), 0.0) << rows;
  }
}

// Stopped after a step and resumed: every metric and every bit of the weights and their averages as without the stop.
TEST(Grpo, GoesOnToTheBit) {
  const language_test::Folder at_once, in_parts;
  GrpoOptions o = quick_options();
  o.ema = 0.9;
  // Stops beside evaluations and in front of two, the last one included.
  o.schedule.steps = sanitized() ? 4 : 9;
  o.schedule.decay = Decay::Cosine;
  o.evaluate_every = sanitized() ? 2 : 4;
  o.evaluate_count = 5;
  const auto want = train(o, at_once.path());
  auto got = train(o, in_parts.path(), sanitized() ? 1 : 2);
  for (const int64_t stop : {o.evaluate_every, o.schedule.steps, int64_t{-1}})
    for (const ordered_json& m : train(o, in_parts.path(), stop)) got.push_back(m);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(without_times(got[i]), without_times(want[i])) << i;
  const RunFolder folder(in_parts.path());
  EXPECT_LE(folder.steps().size(), 3U);  // two, and the best
  EXPECT_EQ(folder.steps().front(), 0);  // no later score is higher
  const std::string newest = "checkpoint-" + std::to_string(o.schedule.steps), last = newest + "/model.safetensors";
  for (const std::string& file : {std::string("model.safetensors"), last, newest + "/trainer.json"})
    EXPECT_EQ(read_file(in_parts.path() / file), read_file(at_once.path() / file)) << file;
  const std::string masters = read_file(at_once.path() / last);
  EXPECT_NE(read_file(at_once.path() / "model.safetensors"), masters);
  ++o.schedule.steps;  // which would change all rates
  try {
    train(o, at_once.path());
    ADD_FAILURE() << "went on with other rates";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("(steps: "), std::string::npos) << e.what();
  }
}

// A run that was stopped before its last evaluation ends without it if none is asked for any more.
TEST(Grpo, AnEvaluationThatIsNoLongerAskedFor) {
  const language_test::Folder folder;
  GrpoOptions o = quick_options();
  o.schedule.steps = 1;
  o.evaluate_every = 1;
  o.evaluate_count = 1;
  train(o, folder.path(), 1);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "model.safetensors"));
  o.evaluate_every = 0;
  train(o, folder.path());
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "model.safetensors"));
}

// The moving average by its definition, and that the store returns it while asked to.
TEST(Updater, Averages) {
  const std::shared_ptr<Backend> backend = make_backend("cpu");
  const std::vector<float> begin{1, -2, 3};
  const auto source = std::make_shared<HostWeights>();
  source->add("w", {DType::F32, {3}, begin.data()});
  Parameters parameters(backend, source, {{"w", Shape{3}}}, 0, true);
  Updater updater(parameters, make_optimizer("sgd", backend, {0, -1, -1, 0}), 0, 0.35);
  const Parameter& w = parameters.all().at(0);
  parameters.set_gradients(parameters.sums());
  std::vector<double> master(begin.begin(), begin.end()), average = master;
  for (int step = 1; step <= 6; ++step) {
    const std::vector<float> grad{1, 0.5F, -static_cast<float>(step)};
    parameters.set(w.grad, grad);
    updater.step(0.1);
    const double d = step == 1 ? 0 : std::min(0.35, step / (9.0 + step));  // diffusers' EMAModel
    for (size_t i = 0; i < 3; ++i) {
      master[i] -= 0.1 * static_cast<double>(grad[i]);
      average[i] = d * average[i] + (1 - d) * master[i];
      EXPECT_NEAR(static_cast<double>(parameters.values(w.master, 3)[i]), master[i], 1e-6);
      EXPECT_NEAR(static_cast<double>(parameters.values(w.average, 3)[i]), average[i], 1e-6) << step;
    }
  }
  EXPECT_THROW(Updater(parameters, make_optimizer("sgd", backend, {}), 0, 1), Error);
}

// Parts of the batch, each as wide as its own longest row, or less memory: the same gradients as all at once.
TEST(Grpo, PartsOfABatchAddUp) {
  const std::shared_ptr<Backend> backend = make_backend("cpu");
  const auto model = tiny_model();
  for (const nn::PolicyLoss kind : {nn::PolicyLoss::DrGrpo, nn::PolicyLoss::Grpo, nn::PolicyLoss::Dapo}) {
    if (sanitized() && kind != nn::PolicyLoss::Dapo) continue;  // it covers what the others do
    std::vector<ordered_json> of;
    Graph g;
    Parameters parameters(backend, model->weights(), model->shapes(), 0);
    const Differentiated whole = decoder_policy_loss(g, model->config(), {8, 56}, {kind, {}, 1}, nn::kF32);
    const int64_t arena_of_all =
        Gradients(parameters, whole, {.precision = training_precision(DType::F32)}).plan().arena_bytes;
    for (const auto& [at_a_time, arena] : {std::pair{int64_t{8}, int64_t{0}}, {2, 0}, {8, arena_of_all * 19 / 20}}) {
      GrpoOptions o = quick_options();
      o.arena_bytes = arena;
      o.loss = kind;
      o.micro_rows = at_a_time;
      o.epochs = 1;
      TimeSpent time;
      PolicyLearner learner(backend, *model, o, time);
      std::vector<std::vector<int32_t>> prompts;
      std::vector<uint64_t> seeds;
      for (const int n : {3, 40, 9, 17, 33, 5, 25, 12}) {
        seeds.push_back(prompts.size());
        prompts.emplace_back();
        for (int i = 0; i < n; ++i) prompts.back().push_back((17 * i * i + 3 * n) % 894);
      }
      const auto made = learner.complete(prompts, seeds, {o.max_tokens, false, {}});
      PolicyBatch batch = learner.batch(prompts, made, {1, -1, 0.5, 0.25, -0.5, 2, -2, 1});
      EXPECT_TRUE(std::ranges::is_sorted(batch.lengths));
      EXPECT_LT(batch.width(0, 2), batch.tokens);
      of.push_back(learner.learn(batch, 1e-3));
      EXPECT_EQ(of.back().at("ratio_error").get<double>(), 0) << at_a_time;
    }
    ASSERT_EQ(of.size(), 3U);
    for (const char* key : {"loss", "grad_norm", "kl"}) {
      const double want = of[0].at(key).get<double>();
      for (const ordered_json& m : of)
        EXPECT_NEAR(m.at(key).get<double>(), want, 1e-5 * std::abs(want) + 1e-9)
            << key << " of loss " << static_cast<int>(kind);
    }
  }
}

// Every moment of a run is assigned to one activity, and each activity has some time.
TEST(Grpo, ActivitiesAddUpToTheRun) {
  const language_test::Folder folder;
  GrpoOptions o = quick_options();
  o.schedule.steps = 3;
  o.evaluate_every = 2;
  o.evaluate_count = 4;
  Grpo grpo(make_backend("cpu"), tiny_model(), sums(), o, folder.path());
  const auto begin = Clock::now();
  EXPECT_TRUE(grpo.run({}, {}));
  const double wall = seconds_since(begin);
  double all = 0;
  for (const char* activity : {"problems", "rollout", "rewards", "plans", "reference", "gradients", "update",
                               "evaluation", "checkpoints", "metrics"}) {
    EXPECT_GT(grpo.time_spent().seconds(activity), 0) << activity;
    all += grpo.time_spent().seconds(activity);
  }
  EXPECT_EQ(grpo.time_spent().seconds().size(), 10U);
  EXPECT_LE(all, wall);
  EXPECT_GE(all, 0.98 * wall);
  EXPECT_NE(grpo.time_spent().table(3).find(" 100.0 %"), std::string::npos) << grpo.time_spent().table(3);
}

// An adapter is trained by the same steps and resumes bit for bit, and the file is what was trained: a generator with
// the model and the folder gives the tokens of the network with the adapter beside its layers.
TEST(Grpo, AnAdapterIsTrainedAndReadBack) {
  const language_test::Folder at_once, in_parts;
  GrpoOptions o = quick_options();
  o.schedule.steps = 6;
  o.schedule.peak = 2e-2;
  o.epochs = 1;
  o.adapter = {4, 2, {"q_proj", "o_proj", "up_proj", "down_proj"}};
  const auto want = train(o, at_once.path());
  auto got = train(o, in_parts.path(), 4);
  for (const ordered_json& m : train(o, in_parts.path())) got.push_back(m);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(without_times(got[i]), without_times(want[i])) << i;
    EXPECT_LE(want[i].at("ratio_error").get<double>(), 1e-4);
  }
  EXPECT_LE(want.front().at("kl").get<double>(), 1e-9);  // the model under the adapter is the reference
  EXPECT_GT(want.back().at("kl").get<double>(), 1e-4);
  for (const char* file : {kAdapterWeights, kAdapterConfig})
    EXPECT_EQ(read_file(in_parts.path() / file), read_file(at_once.path() / file));
  EXPECT_FALSE(file_exists(at_once.path() / "model.safetensors"));

  const auto model = tiny_model();
  DecoderConfig config = model->config();
  config.adapter = o.adapter;
  const SafetensorsFile file = SafetensorsFile::open(at_once.path() / kAdapterWeights);
  const auto source = std::make_shared<HostWeights>();
  const std::unique_ptr<WeightSource> base = model->weights();
  for (const auto& [name, shape] : model->shapes()) source->add(name, base->find(name));
  for (const auto& [name, t] : file.tensors())
    source->add(name.substr(std::string_view(kAdapterPrefix).size()), {t.dtype, t.shape, t.data});
  Rollout rollout(std::make_shared<WeightStore>(make_backend("cpu"), source), config, nn::kF32);
  const std::vector<int32_t> prompt{5, 9, 300, 17};
  const Completion made = rollout.complete({prompt}, {0}, {20, true, model->stop_ids()}).at(0);
  const auto text = [&](const std::string& adapter) {
    TextOptions options = language_test::f32_options();
    options.adapter = adapter;
    TextRequest request;
    request.prompt = prompt;
    request.max_tokens = 20;
    return make_text_generator(model, options)->generate(request);
  };
  const TextResult with = text(at_once.path().string()), without = text("");
  ASSERT_EQ(made.tokens.size(), with.tokens.size());
  for (size_t i = 0; i < made.tokens.size(); ++i) {
    EXPECT_EQ(made.tokens[i], with.tokens[i].id) << i;
    EXPECT_NEAR(made.log_probabilities[i], with.tokens[i].log_probability, 1e-4);
  }
  EXPECT_GT(std::abs(with.tokens[0].log_probability - without.tokens[0].log_probability), 1e-3);
}

// A device that claims to compile fused kernels.
class Recording : public IsaBackend {
 public:
  using IsaBackend::IsaBackend;
  bool records() const override { return true; }
};

TEST(Grpo, RefusesWhatDoesNotFit) {
  const language_test::Folder folder;
  GrpoOptions o = quick_options();
  o.schedule.steps = 2;
  train(o, folder.path(), 1);
  const auto refuses = [&](const std::string& part, const GrpoOptions& options) {
    try {
      const Grpo run(make_backend("cpu"), tiny_model(), sums(), options, folder.path());
      ADD_FAILURE() << "not refused: " << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Usage);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  GrpoOptions other = o;
  other.seed = 43;
  refuses("other options; choose another folder, or use the options in trainer.json (seed: 42 there, 43 here)", other);
  other = o;
  other.loss = nn::PolicyLoss::Grpo;
  refuses(R"((loss: "dr_grpo" there, "grpo" here))", other);
  other = o;
  other.schedule.decay = Decay::Linear;
  refuses(R"((schedule.lr_scheduler: "constant" there, "linear" here))", other);
  other = o;
  other.schedule.peak = 0.5;
  refuses("(schedule.lr: " + nlohmann::json(o.schedule.peak).dump() + " there, 0.5 here)", other);
  other = o;
  other.system = std::string(500, 'a') + "b";
  refuses(R"((system: "" there, "aaaa)", other);
  other = o;
  other.adapter = {0, 1, {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "other"}};
  refuses("(adapter.targets: ", other);
  other = o;
  other.micro_rows = 3;
  refuses("micro rows", other);
  // On a processor recomputed values have the same bits; where they may differ, the run must keep its limit.
  other = o;
  other.arena_bytes = int64_t{1} << 24;
  EXPECT_NO_THROW(Grpo(make_backend("cpu"), tiny_model(), sums(), other, folder.path()));
  EXPECT_FALSE(recipe_json(other, *make_backend("cpu")).contains("max_memory_bytes"));
  EXPECT_EQ(recipe_json(other, Recording(cpu::Isa::Avx2, 1)).at("max_memory_bytes"), other.arena_bytes);
  EXPECT_FALSE(recipe_json(o, Recording(cpu::Isa::Avx2, 1)).contains("max_memory_bytes"));
  const RunFolder held(folder.path());
  refuses("another run", o);
}

// A diverging learning rate: the error names the step, and the last checkpoint stays.
TEST(Grpo, NonFiniteNamesTheStep) {
  const language_test::Folder folder;
  GrpoOptions o = quick_options();
  o.schedule.peak = 1e37;
  o.clip = 0;
  try {
    train(o, folder.path());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Numeric);
    EXPECT_NE(std::string(e.what()).find("step "), std::string::npos) << e.what();
  }
  EXPECT_FALSE(RunFolder(folder.path()).steps().empty());
}

}  // namespace
}  // namespace tenon::train
