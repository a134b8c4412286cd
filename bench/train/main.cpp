// A training step in milliseconds: forward, loss, gradients, norm, AdamW, packed weights. bench/train_torch.py runs it
// next to PyTorch.
//
//   bench_train THREADS STEPS PROFILE ROWS TOKENS VOCABULARY WIDTH HIDDEN LAYERS HEADS KEY_HEADS
//   bench_train THREADS STEPS PROFILE MODEL BATCH
//   bench_train grpo STEPS DEVICE f32|bf16 MODEL PROMPTS GROUP PROMPT_TOKENS NEW_TOKENS EPOCHS BETA [MAX_MIB]
//   bench_train lora STEPS PROFILE DEVICE f32|bf16|e4m3 MODEL SIDE RANK MAX_MIB
//
// grpo: whole steps of Dr. GRPO for a model, possibly one with random weights (random:qwen2.5-0.5b): PROMPTS of random
// tokens with GROUP completions of exactly NEW_TOKENS each, EPOCHS updates, a reference if BETA is above 0. How the
// time was spent goes to standard error. THREADS: of the CPU, which computes in f32; or "cuda", in bf16. Without a
// method: a decoder of Qwen2's layout with random weights and cross entropy; or with MODEL the policy loss of that
// model over the batch of a step of `tenon train grpo` without options, which is written to BATCH (JSON) for the peer.
// lora: a LoRA of RANK beside the attention projections of a model that draws, over one noised picture of SIDE x SIDE
// pixels, in an arena of at most MAX_MIB (0: no limit). PROFILE: 1 writes every launch's share of the gradients to
// standard error.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/io/random.h"
#include "tenon/pipelines/language_model.h"
#include "tenon/pipelines/random_weights.h"
#include "tenon/train/adapter.h"
#include "tenon/train/decoder_loss.h"
#include "tenon/train/denoising.h"
#include "tenon/train/lora_layers.h"
#include "tenon/train/policy_learner.h"
#include "tenon/train/rollout.h"
#include "tenon/train/sums.h"
#include "tenon/train/updater.h"

namespace {
using namespace tenon;
using Clock = std::chrono::steady_clock;

// Anything but a whole number of at least `least` is an error.
int64_t whole(const std::string& text, int64_t least) {
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  TENON_CHECK(Usage, error == std::errc() && end == text.data() + text.size() && out >= least, text)
      << "expected a whole number of at least " << least;
  return out;
}

double since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double median(std::vector<double> v) {
  v.erase(v.begin(), v.begin() + 2);  // these include compiling kernels and touching memory
  std::ranges::sort(v);
  return v[v.size() / 2];
}

void profile(train::Gradients& gradients) {
  constexpr int kRuns = 10;
  gradients.time_launches(true);
  std::vector<LaunchTime> sum;
  for (int run = 0; run < kRuns; ++run) {
    gradients.run();
    const std::vector<LaunchTime> times = gradients.times();
    if (run == 0) sum = times;
    for (size_t i = 0; run > 0 && i < times.size(); ++i) sum[i].seconds += times[i].seconds;
  }
  double all = 0;
  for (const LaunchTime& t : sum) all += t.seconds;
  std::ranges::sort(sum, std::greater(), &LaunchTime::seconds);
  for (const LaunchTime& t : sum)
    std::fprintf(stderr, "%8.3f ms %5.1f %%  %s\n", t.seconds / kRuns * 1e3, 100 * t.seconds / all, t.name.c_str());
  gradients.time_launches(false);
}

void measure(train::Parameters& parameters, train::Gradients& gradients, train::Updater& updater, int steps,
             bool shares) {
  std::vector<double> passes, all;
  double loss = 0;
  for (int i = 0; i < steps + 2; ++i) {
    const auto begin = Clock::now();
    const double now = gradients.run();
    if (i == 0) loss = now;
    passes.push_back(since(begin));
    updater.step(1e-6);
    all.push_back(since(begin));
  }
  std::printf("{\"step_ms\": %.3f, \"gradients_ms\": %.3f, \"fastest_ms\": %.3f, \"launches\": %d, \"loss\": %.7g}\n",
              median(all), median(passes), *std::ranges::min_element(all), counts_of(gradients.plan()).total, loss);
  if (!shares) return;
  const auto publish = Clock::now();
  parameters.publish();
  std::fprintf(stderr, "publish %.3f ms\n", since(publish));
  std::fprintf(stderr, "%s\n", print_plan(gradients.plan()).c_str());
  profile(gradients);
}

int random_decoder(char** numbers, const std::string& threads, int steps, bool shares) {
  const auto number = [&](int i) { return whole(numbers[i], 1); };
  DecoderConfig c;
  c.vocabulary = number(2), c.width = number(3), c.hidden = number(4), c.layers = number(5);
  c.heads = number(6), c.key_heads = number(7), c.head_width = c.width / c.heads, c.theta = 1e4;
  const bool cuda = threads == "cuda";
  const nn::Precision precision = cuda ? nn::kBf16 : nn::kF32;
  const std::shared_ptr<Backend> backend =
      cuda ? make_backend(threads) : make_backend("cpu", {static_cast<int>(whole(threads, 1))});
  const train::BatchShape shape{.rows = number(0), .tokens = number(1), .logit_bytes = train::logit_bytes(*backend)};
  const WeightShapes shapes = decoder_weights(c);
  train::Parameters parameters(backend, random_weights(shapes, 1), shapes, 2);
  Graph g;
  train::Gradients gradients(parameters, train::decoder_cross_entropy(g, c, shape, precision),
                             {.precision = train::training_precision(precision.act)});
  train::Updater updater(parameters, make_optimizer("adamw", backend), 1);
  std::vector<int32_t> ids(static_cast<size_t>(shape.rows * shape.tokens));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * i % static_cast<size_t>(c.vocabulary));
  gradients.set("tokens", {DType::I32, {shape.rows, shape.tokens}, ids.data()});
  gradients.set("target", {DType::I32, {shape.rows, shape.tokens}, ids.data()});
  measure(parameters, gradients, updater, steps, shares);
  return 0;
}

std::vector<int32_t> prompt_ids(const LanguageModel& model, const std::string& prompt) {
  if (!model.tokenizer().chat_template()) {
    std::vector<int32_t> ids = model.tokenizer().prefix();
    std::ranges::copy(model.tokenizer().encode(prompt), std::back_inserter(ids));
    return ids;
  }
  const nlohmann::ordered_json message{{"role", "user"}, {"content", prompt}};
  return model.tokenizer().encode(model.render_chat(nlohmann::ordered_json::array({message})));
}

// 8 problems with 8 completions each, and the advantages of a reward for a correct last digit. The peer's batch is as
// wide as its longest row.
int policy(const char* path, const char* batch_file, int threads, int steps, bool shares) {
  constexpr int64_t kMost = 64;
  const auto model = LanguageModel::open(path);
  const std::shared_ptr<Backend> backend = make_backend("cpu", {threads});
  train::GrpoOptions o;
  o.prompts = o.group = 8;
  o.max_tokens = kMost, o.epochs = 1, o.terms.beta = 0;
  train::TimeSpent time;
  train::PolicyLearner learner(backend, *model, o, time);
  std::vector<std::vector<int32_t>> prompts;
  std::vector<uint64_t> seeds;
  std::vector<double> advantages;
  for (int64_t p = 0; p < o.prompts; ++p)
    for (int64_t i = 0; i < o.group; ++i) {
      prompts.push_back(prompt_ids(*model, sums_problem(1, p).prompt));
      seeds.push_back(static_cast<uint64_t>(prompts.size()));
      advantages.push_back(i % 2 ? 0.5 : -0.5);
    }
  const auto made = learner.complete(prompts, seeds, {kMost, false, model->stop_ids()});
  const train::PolicyBatch written(prompts, made, advantages, false, 1);
  std::ofstream(batch_file) << nlohmann::json{
      {"rows", written.rows}, {"tokens", written.tokens},         {"ids", written.ids}, {"target", written.target},
      {"old", written.old},   {"advantages", written.advantages}, {"longest", kMost}};
  train::PolicyBatch batch = learner.batch(prompts, made, advantages);
  std::vector<double> all;
  double loss = 0;
  for (int i = 0; i < steps + 2; ++i) {
    if (i == 2) time = {};
    const auto begin = Clock::now();
    const nlohmann::ordered_json metrics = learner.learn(batch, 1e-6);
    time.begin("");
    all.push_back(since(begin));
    if (i == 0) loss = metrics.at("loss");
  }
  std::printf("{\"step_ms\": %.3f, \"gradients_ms\": %.3f, \"fastest_ms\": %.3f, \"loss\": %.7g}\n", median(all),
              1e3 * time.seconds("gradients") / steps, *std::ranges::min_element(all), loss);
  if (!shares) return 0;
  train::Gradients& gradients = learner.ready(batch, 0);
  std::fprintf(stderr, "%s\n", print_plan(gradients.plan()).c_str());
  profile(gradients);
  return 0;
}

// Texts of random tokens without an end token, and random rewards: the values do not affect the time.
int grpo(char** words, int64_t mebibytes) {
  const auto number = [&](int i) { return whole(words[i], 1); };
  const int64_t steps = number(0), prompt_tokens = number(6);
  const std::shared_ptr<Backend> backend = make_backend(words[1], {.one_order = true});
  const int64_t free = backend->memory_available();
  const DType type = parse_dtype(words[2]);
  const auto model = LanguageModel::open(words[3]);
  train::GrpoOptions o;
  o.prompts = number(4), o.group = number(5), o.max_tokens = number(7), o.epochs = number(8);
  o.terms.beta = std::atof(words[9]);
  o.arena_bytes = mebibytes << 20;
  o.precision = {type, type};
  train::TimeSpent now;
  train::PolicyLearner learner(backend, *model, o, now);
  const auto rows = static_cast<size_t>(o.prompts * o.group);
  std::vector<double> rollouts, updates, all;
  for (int64_t step = 0; step < steps + 2; ++step) {
    if (step == 2) now = {};  // kernels are compiled, plans made and memory touched by now
    std::vector<std::vector<int32_t>> prompts(rows);
    std::vector<uint64_t> seeds;
    std::vector<double> advantages;
    for (size_t r = 0; r < rows; ++r) {
      const auto problem = static_cast<int64_t>(r) / o.group + step * o.prompts;
      for (int64_t i = 0; i < prompt_tokens; ++i)
        prompts[r].push_back(static_cast<int32_t>((i * i * 31 + problem * 7919 + i) % model->config().vocabulary));
      seeds.push_back(static_cast<uint64_t>(step) * rows + r);
      advantages.push_back(r % 2 ? 0.5 : -0.5);
    }
    const auto begin = Clock::now();
    now.begin("rollout");
    const auto made = learner.complete(prompts, seeds, {o.max_tokens, false, {}});
    rollouts.push_back(since(begin));
    train::PolicyBatch batch = learner.batch(prompts, made, advantages);
    const nlohmann::ordered_json metrics = learner.learn(batch, 1e-6);
    now.begin("");
    all.push_back(since(begin));
    updates.push_back(all.back() - rollouts.back());
    if (step == 0) std::fprintf(stderr, "%s, %.1f s\n", metrics.dump().c_str(), all.back() / 1e3);
  }
  std::fputs(now.table(steps).c_str(), stderr);
  std::printf("{\"step_ms\": %.3f, \"rollout_ms\": %.3f, \"updates_ms\": %.3f, \"device_bytes\": %s}\n", median(all),
              median(rollouts), median(updates), std::to_string(free - backend->memory_available()).c_str());
  return 0;
}

// Random latents and text: the values do not affect the time.
int lora(char** words) {
  const auto steps = static_cast<int>(whole(words[0], 1));
  const bool shares = whole(words[1], 0) != 0;
  const std::string type = words[3];
  const int64_t side = whole(words[5], 1), rank = whole(words[6], 1);
  const DType stored = type == "f32" ? DType::F32 : DType::BF16;
  const std::shared_ptr<Backend> backend = make_backend(words[2], {});
  const int64_t free = backend->memory_available();
  const auto model = open_as<TrainableDenoiser>(words[4], {.backend = backend, .type = stored, .encodes = false});
  const auto weights =
      std::make_shared<const std::set<std::string>>(train::target_weights(model->shapes(), train::attention_targets()));
  const nn::SideBranches branches{rank, weights, 1};
  const WeightShapes leaves = train::branch_shapes(model->shapes(), *weights, rank);
  train::Parameters parameters(backend, train::with_new_adapter(model->weights(), leaves, 1), leaves, 2);

  constexpr int64_t kTextRows = 128, kTextWidth = 2560;
  const train::DenoisingShape shape{1, model->latent_shape(side, side), kTextRows, kTextWidth};
  const DenoiserTraining training = model->training({});
  train::GradientOptions options{.merge_siblings = false, .arena_bytes = whole(words[7], 0) << 20};
  options.precision = train::training_precision(*model, parse_dtype(words[3]), branches);
  Graph g;
  train::Gradients gradients(
      parameters, train::adapter_gradients(g, *model, shape, training.target, branches, {stored, stored}), options);
  train::Updater updater(parameters, make_optimizer("adamw", backend), 1);
  const auto random = [](int64_t n) {
    std::vector<float> out(static_cast<size_t>(n));
    TorchGenerator(1).randn(out);
    return out;
  };
  train::PictureSet pictures;
  pictures.pictures.push_back({{random(2 * shape.latent.numel())}, 0, {side, side}});
  pictures.texts.push_back({random(kTextRows * kTextWidth), kTextRows, kTextWidth});
  const train::DenoisingData data{model.get(), &pictures, training, {}, 1};
  train::DenoisingBatch batch(data, shape);
  batch.add(0, 1);
  batch.give(gradients);
  measure(parameters, gradients, updater, steps, shares);
  const int64_t planned = gradients.memory().total() + parameters.bytes(), taken = free - backend->memory_available();
  std::printf("{\"planned_bytes\": %s, \"device_bytes\": %s}\n", std::to_string(planned).c_str(),
              std::to_string(taken).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const bool is_grpo = argc > 1 && std::strcmp(argv[1], "grpo") == 0;
  if (is_grpo && (argc == 12 || argc == 13)) return grpo(argv + 2, argc == 13 ? whole(argv[12], 0) : 0);
  if (argc == 10 && std::strcmp(argv[1], "lora") == 0) return lora(argv + 2);
  if (argc != 12 && argc != 6) return std::fprintf(stderr, "expected what the first lines of the source say\n"), 2;
  const auto steps = static_cast<int>(whole(argv[2], 1));
  const bool shares = whole(argv[3], 0) != 0;
  return argc == 12 ? random_decoder(argv + 4, argv[1], steps, shares)
                    : policy(argv[4], argv[5], static_cast<int>(whole(argv[1], 1)), steps, shares);
} catch (const std::exception& e) {
  return std::fprintf(stderr, "bench_train: error: %s\n", e.what()), 1;
}
