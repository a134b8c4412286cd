// Arguments that no run of the program passes, and folders that it did not write: one error, and nothing is damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/io/safetensors.h"
#include "tenon/train/adapter.h"
#include "tenon/train/batch_order.h"
#include "tenon/train/checkpoint.h"
#include "tenon/train/denoising.h"
#include "tenon/train/grpo.h"
#include "tenon/train/lora.h"
#include "tenon/train/metrics.h"
#include "tenon/train/ovals.h"
#include "tenon/train/policy_batch.h"
#include "tenon/train/rewards.h"
#include "tenon/train/rollout.h"
#include "tenon/train/updater.h"
#include "tests/fixtures/z_image_folder.h"
#include "tests/language/language_fixtures.h"

namespace tenon::train {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

template <class F>
void expect_usage(const std::string& part, const F& f) {
  try {
    f();
    ADD_FAILURE() << "expected: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(ErrorKind::Usage)) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(part));
  }
}

Parameters ones(size_t moments, const WeightShapes& shapes = {{"w", Shape{4, 4}}}) {
  static const std::vector<float> values(16, 1.0F);
  const auto source = std::make_shared<HostWeights>();
  source->add("w", {DType::F32, {4, 4}, values.data()});
  source->add("empty", {DType::F32, {0}, values.data()});
  return {make_backend("cpu"), source, shapes, moments};
}

TEST(OddArguments, ParametersAndUpdates) {
  expect_usage("[moments] 9: expected at most 2", [] { ones(9); });
  expect_usage("[parameters] expected names of tensors, found '__metadata__'", [] {
    ones(0, {{"__metadata__", Shape{4, 4}}});
  });
  const auto update = [](const WeightShapes& shapes) {
    Parameters parameters = ones(2, shapes);
    const Updater updater(parameters, make_optimizer("adamw", parameters.backend()), 1);
  };
  expect_usage("[parameters] there are none to update", [&] { update({}); });
  expect_usage("[empty] has no elements", [&] { update({{"empty", Shape{0}}}); });
  Graph g;
  const Expr w = param(g, "w", DType::F32, {4, 4});
  expect_usage("[loss] is [4,4], expected one number", [&] { differentiate(w * w); });
}

TEST(OddArguments, AValueThatIsNotFiniteIsOneStepsError) {
  Parameters parameters = ones(0);
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 4});
  const Expr large = materialize(exp(x * param(g, "w", DType::F32, {4, 4})));
  Gradients gradients(parameters, differentiate(mean(reshape(clamp(large, 0.0, 1.0), {1, 16}))));
  const auto run = [&](double value) {
    gradients.set("x", std::vector<float>(16, static_cast<float>(value)));
    return gradients.run();
  };
  EXPECT_THROW(run(kNotANumber), Error);
  EXPECT_EQ(run(1000), 1) << "infinity in between is no error, before or after another step's";
}

TEST(OddArguments, NothingWhereThereMustBeOne) {
  const auto source = std::make_shared<HostWeights>();
  const WeightShapes shapes{{"w", Shape{4, 4}}};
  const std::shared_ptr<Backend> cpu = make_backend("cpu"), none;
  expect_usage("[backend] expected one, found null", [&] { Parameters(none, source, shapes, 0); });
  expect_usage("[weights] expected one, found null", [&] { Parameters(cpu, nullptr, shapes, 0); });
  Parameters parameters = ones(0);
  expect_usage("[optimizer] expected one, found null", [&] { Updater(parameters, nullptr, 1); });
  expect_usage("[memory of a parameter] expected one, found null", [&] { parameters.values(nullptr, 16); });
  expect_usage("[memory of a parameter] expected one, found null",
               [&] { parameters.set(nullptr, std::vector<float>(16)); });
  expect_usage("[weights] expected one, found null", [&] { with_new_adapter(nullptr, shapes, 1); });
  expect_usage("[weights] expected one, found null", [] { Rollout(nullptr, {}, {}); });
  expect_usage("[backend] expected one, found null", [&] { Grpo(none, nullptr, {}, {}, "run"); });
  expect_usage("[model] expected one, found null", [&] { Grpo(cpu, nullptr, {}, {}, "run"); });
  expect_usage("[backend] expected one, found null", [&] { LoraTraining(none, nullptr, {}, {}, {}, "run"); });
  expect_usage("[model] expected one, found null", [&] { LoraTraining(cpu, nullptr, {}, {}, {}, "run"); });
  const DenoisingData data;
  expect_usage("[model] expected one, found null", [&] { DenoisingBatch(data, {}); });
  const Reward script{.kind = Reward::Kind::Script, .weight = 1, .script = nullptr};
  expect_usage("[script of a reward] expected one, found null", [&] { rewards_of(script, {}); });
  expect_usage("[script of a reward] expected one, found null", [&] { reward_name(script); });
}

class OddCheckpoints : public testing::Test {
 protected:
  void write(int64_t step, int64_t keep, size_t moments = 2) const {
    const Parameters parameters = ones(moments);
    CheckpointContent content;
    content.step = step;
    content.run = {{"options", {{"a", 1}}}};
    write_checkpoint(RunFolder(out()), parameters, *make_optimizer("adamw", parameters.backend()), content, keep);
  }
  int64_t read(size_t moments = 2) const {
    Parameters parameters = ones(moments);
    const auto optimizer = make_optimizer("adamw", parameters.backend());
    const auto r = read_newest(RunFolder(out()), {{"a", 1}}, "other", {}, parameters, *optimizer);
    return r ? r->step : -1;
  }
  fs::path out() const { return folder_.path() / "run"; }

  language_test::Folder folder_;
};

// Another program's "checkpoint-0007" is no checkpoint, and does not cost the run its own.
TEST_F(OddCheckpoints, OnlyTheirOwnNames) {
  write(6, 0);
  for (const char* name : {"checkpoint-0007", "checkpoint-+8", "checkpoint--9", "checkpoint-10.txt", "checkpoint-"})
    fs::create_directories(out() / name);
  EXPECT_EQ(read(), 6);
  write(7, 1);
  EXPECT_EQ(checkpoint_steps(out()), std::vector<int64_t>{7});
  EXPECT_EQ(read(), 7);
  EXPECT_TRUE(fs::exists(out() / "checkpoint-0007"));
  expect_usage("of step -1: expected 0 or more", [&] { write(-1, 0); });
}

// It may be the only one, so it is there at every moment.
TEST_F(OddCheckpoints, OneOfTheSameStepTakesThePlace) {
  write(1, 1);
  std::atomic<bool> done = false;
  std::atomic<int> missing = 0;
  std::thread watch([&] {
    while (!done) missing += !fs::exists(out() / "checkpoint-1");
  });
  for (int i = 0; i < 30; ++i) write(1, 1);
  done = true;
  watch.join();
  EXPECT_EQ(missing, 0);
  EXPECT_EQ(read(), 1);
  for (const auto& entry : fs::directory_iterator(out()))
    EXPECT_THAT(entry.path().filename(), testing::Not(HasSubstr("un")));
}

// What is there of another run or program stays, and so does what was just written.
TEST_F(OddCheckpoints, OthersAreNotRemoved) {
  write(7, 1);
  expect_usage("run] has a checkpoint of step 7 already, after step 6; resume that run", [&] { write(6, 1); });
  EXPECT_EQ(checkpoint_steps(out()), std::vector<int64_t>{7});
  fs::create_directories(out() / "checkpoint-5");
  write(8, 1);
  EXPECT_EQ(checkpoint_steps(out()), (std::vector<int64_t>{5, 8}));
}

TEST_F(OddCheckpoints, NeedTheOptimizersMoments) {
  expect_usage("[w] has no memory for the optimizer's exp_avg", [&] { write(1, 0, 0); });
  expect_usage("exp_avg_sq; it needs 2 moments", [&] { write(1, 0, 1); });
  write(1, 0);
  expect_usage("exp_avg_sq; it needs 2 moments", [&] { read(1); });
}

// With such a moment a run would fail a step later, in another place.
TEST_F(OddCheckpoints, HoldNumbers) {
  write(1, 0);
  const fs::path file = out() / "checkpoint-1" / "optimizer.safetensors";
  fs::remove(file);
  std::vector<float> moments(16, 0.0F);
  const auto tensor = [&](const char* name) {
    return TensorData{name, DType::F32, {4, 4}, std::as_bytes(std::span(moments))};
  };
  moments[3] = static_cast<float>(kNotANumber);
  write_safetensors(file, std::vector{tensor("exp_avg.w"), tensor("exp_avg_sq.w")});
  try {
    read();
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(ErrorKind::Model));
    EXPECT_THAT(e.what(), HasSubstr("optimizer.safetensors] 'exp_avg.w' holds nan at element 3"));
  }
}

// Someone may have removed the checkpoints of a run that goes on.
TEST_F(OddCheckpoints, AnErrorWithoutACheckpoint) {
  const RunFolder folder(out());
  const auto bad = []() -> nlohmann::ordered_json { throw Error(ErrorKind::Numeric, "loss", "is nan"); };
  try {
    named_step(folder, 3, bad);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("[step 3] [loss] is nan (there is no checkpoint)"));
  }
}

TEST(OddArguments, OrderOfProblemsAndPictures) {
  expect_usage("there is no problem 0 of 0", [] { shuffled({}, 1)(0); });
  expect_usage("there is no problem -1 of 2", [] { shuffled({{"a", "b"}, {"c", "d"}}, 1)(-1); });
  expect_usage("there is no problem 3 of -4", [] { shuffled_index(3, -4, 1); });
  expect_usage("64x64 in multiples of 0", [] { aspect_buckets({64, 64}, 0); });
  expect_usage("-64x64 in multiples of 8", [] { aspect_buckets({-64, 64}, 8); });
  expect_usage("none of 0 sizes", [] { nearest_shape({}, {3, 4}); });
  expect_usage("nearest to 0x4", [] { nearest_shape({{8, 8}}, {0, 4}); });
  expect_usage("batches of 2 from 0 pictures", [] { BatchOrder({}, 2, 1); });
  PictureSet three;
  three.pictures.resize(3);
  expect_usage("batches of 0 from 3 pictures", [&] { BatchOrder(three, 0, 1); });
  expect_usage("there is no batch -1", [&] { BatchOrder(three, 2, 1).at(-1); });
  expect_usage("there is none at 0.5", [] { level_at({}, 0.5); });
  expect_usage("there is none at nan", [] { level_at({{1, 0, 1}}, kNotANumber); });
}

TEST(OddArguments, Batches) {
  const std::vector<int32_t> prompt{1, 2, 3};
  const Completion whole{{4, 5}, {-1, -1}, true}, none, unlike{{4, 5}, {-1}, true};
  const auto batch = [](const std::vector<std::vector<int32_t>>& prompts, const std::vector<Completion>& made,
                        const std::vector<double>& advantages,
                        int64_t multiple = 8) { return PolicyBatch(prompts, made, advantages, false, multiple); };
  EXPECT_EQ(batch({prompt}, {whole}, {1}).tokens, 8);
  expect_usage("got 0 prompts", [&] { batch({}, {}, {}); });
  expect_usage("got 2 prompts, 1 completions and 2 advantages", [&] { batch({prompt, prompt}, {whole}, {1, 1}); });
  expect_usage("2 completions and 1 advantages", [&] { batch({prompt, prompt}, {whole, whole}, {1}); });
  expect_usage("row 0 has 0 tokens of a prompt", [&] { batch({{}}, {whole}, {1}); });
  expect_usage("row 0 has 3 tokens of a prompt, 0 of a completion", [&] { batch({prompt}, {none}, {1}); });
  expect_usage("2 of a completion and 1 log-probabilities", [&] { batch({prompt}, {unlike}, {1}); });
  expect_usage("a multiple of 0 tokens", [&] { batch({prompt}, {whole}, {1}, 0); });
  const Judgement judged{1, true, ""};
  nlohmann::ordered_json metrics;
  expect_usage("groups of 0", [&] { batch_metrics({judged}, {whole}, 0, metrics); });
  expect_usage("groups of 2", [&] { batch_metrics({judged}, {whole}, 2, metrics); });
  expect_usage("1 completions with 2 judgements", [&] { batch_metrics({judged, judged}, {whole}, 2, metrics); });
}

TEST(OddArguments, Metrics) {
  const language_test::Folder folder;
  MetricsLog log(folder.path(), -1, {.events = true});
  expect_usage("an integer \"step\"", [&] { log.add({{"loss", 1.0}}); });
  expect_usage("an integer \"step\"", [&] { log.add({{"loss", 1.0}, {"step", "x"}}); });
  log.add({{"loss", 1.0}, {"step", 1}});
  int64_t passed = 0;
  EXPECT_EQ(read_metrics(folder.path(), &passed).size(), 1U);
  EXPECT_EQ(passed, 0);  // nothing was written of the others
}

TEST(OddArguments, LayersOfALora) {
  const WeightShapes model{{"a.weight", Shape{2, 2}}, {"b.weight", Shape{2}}};
  expect_usage("'c.weight' is not the weight of a linear layer", [&] { branch_shapes(model, {"c.weight"}, 2); });
  expect_usage("'b.weight' is not the weight of a linear layer", [&] { branch_shapes(model, {"b.weight"}, 2); });
  // PEFT takes the word for all layers alone only.
  const std::string notes = lora_metadata("unet", 2, 2, {"to_q", kAllLinear}).at("lora_adapter_metadata");
  EXPECT_THAT(notes, HasSubstr(R"("unet.target_modules":"all-linear")"));
  const language_test::Folder folder;
  const float value = 1;
  const auto convert = [&](const std::string& name, const Shape& shape) {
    const TensorData t{name, DType::F32, shape, std::as_bytes(std::span(&value, 1))};
    write_safetensors(folder.path() / "from.safetensors", std::span(&t, 1));
    convert_lora(folder.path() / "from.safetensors", folder.path() / "to.safetensors", "unet", 1, LoraFormat::Kohya);
  };
  for (const auto& [name, shape] : {std::pair("unet.lora_A.weight", Shape{1, 1}), {"unet.x.lora_A.weight", Shape{}}})
    EXPECT_THROW(convert(name, shape), Error) << name;
  EXPECT_FALSE(fs::exists(folder.path() / "to.safetensors"));
}

class OddLoraRuns : public testing::Test {
 protected:
  OddLoraRuns() { fixtures::write_z_image(folder_.path()); }
  void train(const std::function<void(LoraOptions&)>& change, const std::vector<CaptionedPicture>& pictures,
             const LoraTraining::OnMetrics& each = {}) {
    LoraOptions o;
    o.rank = 2;
    o.width = 32;
    o.schedule.steps = 1;
    change(o);
    const std::shared_ptr<Backend> backend = make_backend("cpu");
    auto model =
        open_as<TrainableDenoiser>(folder_.path().string(), {.backend = backend, .type = DType::F32, .parts = {}});
    LoraTraining(backend, std::move(model), pictures, {}, o, folder_.path() / "run").run(each, {});
  }
  void expect_refused(const std::string& part, const std::function<void(LoraOptions&)>& change) {
    expect_usage(part, [&] { train(change, {ovals()[0]}); });
    EXPECT_FALSE(fs::exists(folder_.path() / "run"));
  }
  language_test::Folder folder_;
};

TEST_F(OddLoraRuns, AreRefusedBeforeAFolderIsMade) {
  expect_usage("there are none to train on", [&] { train([](LoraOptions&) {}, {}); });
  expect_refused("[type] f16: expected f32, bf16 or e4m3", [](LoraOptions& o) { o.type = DType::F16; });
  expect_refused("[type] i32: expected", [](LoraOptions& o) { o.type = DType::I32; });
  expect_refused("[validation levels] 0: expected 1 or more", [](LoraOptions& o) {
    o.validate_every = 1;
    o.validate_levels = 0;
  });
  expect_refused("expected counts of 0 or more", [](LoraOptions& o) { o.validate_every = -1; });
  expect_refused("expected counts of 0 or more", [](LoraOptions& o) { o.keep = -1; });
  expect_refused("expected a function that opens the model", [](LoraOptions& o) {
    o.samples.every = 1;
    o.samples.prompts = {"a"};
  });
}

// All pictures are validated, however many there are: another last one is another loss.
TEST_F(OddLoraRuns, EveryPictureIsValidated) {
  std::vector<CaptionedPicture> pictures;
  for (size_t i = 0; i < 5; ++i) pictures.push_back(ovals()[i]);
  const auto validated = [&] {
    fs::remove_all(folder_.path() / "run");
    std::vector<nlohmann::ordered_json> out;
    const auto change = [](LoraOptions& o) { o.validate_every = 1, o.validate_levels = 4; };
    train(change, pictures, [&](const nlohmann::ordered_json& m) {
      if (m.contains("validation_loss")) out.push_back(m);
    });
    return out.at(0);
  };
  const nlohmann::ordered_json first = validated();
  EXPECT_EQ(first.at("count"), 8);  // a multiple of the number of noise levels
  pictures.back() = ovals()[9];
  EXPECT_NE(validated().at("validation_loss"), first.at("validation_loss"));
}

// A cached encoding that cannot be this picture's or text's is made again.
TEST_F(OddLoraRuns, EncodingsOfAnotherShape) {
  const fs::path cache = folder_.path() / "cache";
  const auto encode = [&] {
    const auto model = open_as<TrainableDenoiser>(folder_.path().string(),
                                                  {.backend = make_backend("cpu"), .type = DType::F32, .parts = {}});
    return encode_pictures(*model, DType::F32, {ovals()[0]}, {{{32, 32}}, true}, cache);
  };
  const PictureSet first = encode();
  EXPECT_EQ(first.made, 3);
  EXPECT_EQ(encode().made, 0);
  const float value = 1;
  const TensorData other{"values", DType::F32, {1, 1}, std::as_bytes(std::span(&value, 1))};
  for (const auto& entry : fs::directory_iterator(cache)) write_safetensors(entry.path(), std::span(&other, 1));
  const PictureSet again = encode();
  EXPECT_EQ(again.made, 3);
  EXPECT_EQ(again.pictures[0].moments, first.pictures[0].moments);
  EXPECT_EQ(again.texts[0].values, first.texts[0].values);
}

TEST_F(OddLoraRuns, PicturesWithoutPixels) {
  std::vector<CaptionedPicture> pictures{ovals()[0]};
  pictures[0].image.pixels.resize(10);
  expect_usage("[oval 0] [picture] of 128x128 pixels and 3 channels holds 10 bytes",
               [&] { train([](LoraOptions&) {}, pictures); });
}

}  // namespace
}  // namespace tenon::train
