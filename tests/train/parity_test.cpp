// Training of small decoders against PyTorch: gradients of a step, and losses over many steps.
#include <gtest/gtest.h>

#include <numeric>

#include "tenon/core/error.h"
#include "tests/support/close.h"
#include "tests/train/training_cases.h"

namespace tenon::train {
namespace {
using namespace test;

constexpr double kOfGradients = 1e-4, kOfPath = 1e-4;  // relative, f32 against f64

class TrainingParity : public testing::TestWithParam<size_t> {
 protected:
  const nlohmann::json& about() const { return recorded().at("models").at(GetParam()); }
};

OptimizerOptions recorded_adamw() {
  const nlohmann::json& a = recorded().at("adamw");
  return {a.at("betas")[0], a.at("betas")[1], a.at("eps"), a.at("weight_decay")};
}

struct Path {
  std::vector<double> losses, norms;
};

// The recorded run: steps of micro-batches, with clipping, by AdamW.
Path train(const nlohmann::json& about, nn::Precision precision, int64_t arena_bytes = 0) {
  const auto model = std::make_shared<Model>(about);
  const std::shared_ptr<Backend> backend = make_backend("cpu");
  Parameters parameters(backend, model, model->shapes, 2);
  Graph g;
  Gradients gradients(parameters, decoder_cross_entropy(g, model->config, batch_shape(), precision),
                      {.accumulates = true, .arena_bytes = arena_bytes});
  Updater updater(parameters, make_optimizer("adamw", backend, recorded_adamw()), recorded().at("clip"));
  const int64_t micro = recorded().at("micro");
  Path out;
  for (size_t step = 0; step < about.at("losses").size(); ++step) {
    double loss = 0;
    for (int64_t m = 0; m < micro; ++m) {
      Batch(static_cast<int64_t>(step), m, model->config.vocabulary).give(gradients);
      loss += gradients.run(m == 0) / static_cast<double>(micro);
    }
    out.losses.push_back(loss);
    out.norms.push_back(updater.step(recorded().at("adamw").at("lr"), micro).norm);
  }
  return out;
}

TEST_P(TrainingParity, GradientsOfEveryWeight) {
  const auto model = std::make_shared<Model>(about());
  const std::shared_ptr<Backend> backend = make_backend("cpu");
  Parameters parameters(backend, model, model->shapes, 0);
  Graph g;
  Gradients gradients(parameters, decoder_cross_entropy(g, model->config, batch_shape(), nn::kF32));
  Batch(0, 0, model->config.vocabulary).give(gradients);
  EXPECT_GT(gradients.run(), 1);
  size_t compared = 0;
  for (const Parameter& p : parameters.all()) {
    const nlohmann::json& want = about().at("gradients").at(p.name);
    const std::vector<float> got = parameters.values(p.grad, p.count());
    EXPECT_TRUE(close_to_largest(every(got, want.at("stride").get<size_t>()),
                                 want.at("values").get<std::vector<double>>(), kOfGradients))
        << p.name;
    ++compared;
  }
  EXPECT_EQ(compared, about().at("gradients").size());
  EXPECT_EQ(compared, about().at("shapes").size());
}

TEST_P(TrainingParity, LossesOfManySteps) {
  const Path run = train(about(), nn::kF32);
  const auto want = about().at("losses").get<std::vector<double>>(),
             norms = about().at("norms").get<std::vector<double>>();
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_LE(std::abs(run.losses[i] - want[i]), kOfPath * want[i]) << "step " << i;
    EXPECT_LE(std::abs(run.norms[i] - norms[i]), 10 * kOfPath * norms[i]) << "step " << i;
  }
  EXPECT_LT(want.back(), want.front());
}

// bf16 networks over f32 masters: the same losses within bf16's rounding.
TEST_P(TrainingParity, Bf16OverMasters) {
  const Path run = train(about(), nn::kBf16);
  const auto want = about().at("losses").get<std::vector<double>>();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_LE(std::abs(run.losses[i] - want[i]), 0.03 * want[i]) << "step " << i;
}

TEST_P(TrainingParity, LessMemoryIsTheSamePath) {
  const auto model = std::make_shared<Model>(about());
  Parameters parameters(make_backend("cpu"), model, model->shapes, 0);
  Graph g;
  const int64_t whole =
      Gradients(parameters, decoder_cross_entropy(g, model->config, batch_shape(), nn::kF32)).plan().arena_bytes;
  const Path run = train(about(), nn::kF32, whole * 19 / 20);
  const auto want = about().at("losses").get<std::vector<double>>();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_LE(std::abs(run.losses[i] - want[i]), kOfPath * want[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Models, TrainingParity, testing::Range(size_t{0}, size_t{3}),
                         [](const auto& each) { return recorded().at("models").at(each.param).at("name"); });

// Gradients take no memory besides the arena, and have the same offsets in it for any batch, so that they need not be
// looked up again.
TEST(TrainingMemory, GradientsLieInTheArena) {
  const auto model = std::make_shared<Model>(recorded().at("models").at(0));
  const std::shared_ptr<Backend> backend = make_backend("cpu");
  Parameters parameters(backend, model, model->shapes, 2);
  EXPECT_EQ(parameters.bytes(), 3 * 4 * parameters.count());
  const auto arena = std::make_shared<Arena>(backend);
  const std::vector<int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<std::unique_ptr<Gradients>> made;
  for (const int64_t rows : {1, 2}) {
    Graph g;
    made.push_back(std::make_unique<Gradients>(
        parameters, decoder_cross_entropy(g, model->config, {.rows = rows, .tokens = 4}, nn::kF32),
        GradientOptions{.arena = arena}));
  }
  std::vector<std::vector<void*>> places;
  for (size_t i = 0; i < made.size(); ++i) {
    for (const char* name : {"tokens", "target"})
      made[i]->set(name, {DType::I32, {static_cast<int64_t>(i) + 1, 4}, ids.data()});
    made[i]->run();
    places.emplace_back();
    for (const Parameter& p : parameters.all()) {
      places.back().push_back(p.grad.get());
      const auto* const at = static_cast<const std::byte*>(p.grad.get());
      EXPECT_TRUE(at >= arena->memory() && at + p.bytes() <= arena->memory() + arena->bytes()) << p.name;
    }
  }
  EXPECT_EQ(places[0], places[1]);
}

// A weight that is not finite: the loss reports it, naming a launch, and nothing is written.
TEST(TrainingFaults, NonFiniteLossAndGradients) {
  const auto model = std::make_shared<Model>(recorded().at("models").at(0));
  const std::shared_ptr<Backend> backend = make_backend("cpu");
  model->values.at("model.norm.weight")[3] = NAN;
  Parameters parameters(backend, model, model->shapes, 2);
  Graph g;
  Gradients gradients(parameters, decoder_cross_entropy(g, model->config, batch_shape(), nn::kF32));
  Batch(0, 0, model->config.vocabulary).give(gradients);
  try {
    gradients.run();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Numeric);
    EXPECT_NE(std::string(e.what()).find("launch '"), std::string::npos) << e.what();
  }
  Updater updater(parameters, make_optimizer("adamw", backend), 1);
  std::vector<float> bad(static_cast<size_t>(parameters.all()[1].count()), 1);
  bad[2] = INFINITY;
  parameters.set_gradients(parameters.sums());
  for (const Parameter& p : parameters.all())
    parameters.set(p.grad, std::vector<float>(static_cast<size_t>(p.count())));
  parameters.set(parameters.all()[1].grad, bad);
  const std::vector<float> before = parameters.values(parameters.all()[1].master, parameters.all()[1].count());
  try {
    updater.step(1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Numeric);
    EXPECT_EQ(e.where(), parameters.all()[1].name);
  }
  EXPECT_EQ(parameters.values(parameters.all()[1].master, parameters.all()[1].count()), before);
  EXPECT_EQ(updater.steps(), 0);
}

}  // namespace
}  // namespace tenon::train
