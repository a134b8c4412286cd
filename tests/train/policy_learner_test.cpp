// Parts of an update: how many rows each has, and how often one is planned.
#include "tenon/train/policy_learner.h"

#include <gtest/gtest.h>

#include "tests/language/language_fixtures.h"

namespace tenon::train {
namespace {

std::shared_ptr<const LanguageModel> random_model() {
  static const language_test::Folder folder;
  static const std::shared_ptr<const LanguageModel> model = [] {
    language_test::write_model(language_test::recorded()["cases"][0], folder);
    return LanguageModel::open(folder.path().string());
  }();
  return model;
}

// Row r has r + 1 times `length` tokens and learns two more.
PolicyBatch ever_longer(const PolicyLearner& learner, size_t rows, size_t length) {
  std::vector<std::vector<int32_t>> prompts;
  for (size_t r = 0; r < rows; ++r) {
    prompts.emplace_back();
    for (size_t i = 0; i < (r + 1) * length; ++i) prompts.back().push_back(static_cast<int32_t>((7 * i + 13 * r) % 97));
  }
  std::vector<double> advantages(rows, -1);
  advantages[0] = 1;
  return learner.batch(prompts, std::vector(rows, Completion{{4, 5}, {-3, -3}, true}), advantages);
}

TEST(PolicyLearner, RowsAtATime) {
  const auto rows_of = [](int64_t prompts, int64_t tokens, nn::PolicyLoss loss) {
    GrpoOptions o;
    o.prompts = prompts;
    o.group = 4;
    o.max_tokens = tokens;
    o.loss = loss;
    o.terms.beta = 0;
    TimeSpent time;
    PolicyLearner learner(make_backend("cpu"), *random_model(), o, time);
    const auto rows = static_cast<size_t>(prompts * o.group);
    const PolicyBatch batch =
        learner.batch(std::vector(rows, std::vector<int32_t>{1, 2}), std::vector(rows, Completion{{4}, {-3}, true}),
                      std::vector<double>(rows, 1));
    const std::vector<Buffer>& all = learner.ready(batch, 0).plan().buffers;
    return std::ranges::find(all, "advantage", &Buffer::name)->shape[0];
  };
  const auto of = nn::PolicyLoss::DrGrpo;
  EXPECT_EQ(rows_of(6, 170, of), 24);  // 4080 tokens
  EXPECT_EQ(rows_of(4, 400, of), 16);
  EXPECT_EQ(rows_of(6, 200, of), 12);
  EXPECT_EQ(rows_of(7, 200, of), 14);
  EXPECT_EQ(rows_of(6, 200, nn::PolicyLoss::Bnpo), 24);  // whose mean is that of all rows
}

// A batch whose parts all have other lengths is planned once, in the reference's pass too.
TEST(PolicyLearner, PartsArePlannedOnce) {
  GrpoOptions o;
  o.prompts = 3;
  o.group = 3;
  o.max_tokens = 2;
  o.micro_rows = 1;
  o.epochs = 1;
  TimeSpent time;
  PolicyLearner learner(make_backend("cpu"), *random_model(), o, time);
  const auto learn = [&] {
    PolicyBatch batch = ever_longer(learner, 9, 8);
    learner.learn(batch, 1e-4);
    time.begin("");
  };
  learn();
  const double once = time.seconds("plans");
  EXPECT_GT(once, 0);
  learn();
  EXPECT_EQ(time.seconds("plans"), once);
}

TEST(Recent, TheLeastRecentlyUsedMakesRoom) {
  Recent<int, std::string> two(2);
  std::vector<int> made;
  const auto ask = [&](int key) {
    EXPECT_EQ(two.get(key, [&] { return made.push_back(key), std::to_string(key); }), std::to_string(key));
  };
  for (const int key : {1, 2, 1, 3, 1, 2, 1}) ask(key);
  EXPECT_EQ(made, (std::vector{1, 2, 3, 2}));
  EXPECT_THROW(two.get(4, []() -> std::string { throw 4; }), int);
  ask(4);
  ask(1);
  EXPECT_EQ(made, (std::vector{1, 2, 3, 2, 4}));
}

}  // namespace
}  // namespace tenon::train
