// Parts of an update: how many rows each has.
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

}  // namespace
}  // namespace tenon::train
