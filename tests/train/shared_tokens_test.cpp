// Beginnings that rows share are computed once, without changing what is learnt.
#include "tenon/train/shared_tokens.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tenon/core/error.h"
#include "tenon/train/decoder_loss.h"
#include "tests/language/language_fixtures.h"
#include "tests/support/close.h"
#include "tests/support/sanitized.h"

namespace tenon::train {
namespace {

std::shared_ptr<const LanguageModel> recorded_model(size_t number) {
  static std::vector<std::unique_ptr<language_test::Folder>> folders;
  const language_test::Folder& folder = *folders.emplace_back(std::make_unique<language_test::Folder>());
  language_test::write_model(language_test::recorded()["cases"][number], folder);
  return LanguageModel::open(folder.path().string());
}

// Completions of a few prompts: equal ones, some that are beginnings of others, and more for one prompt than may share.
struct Texts {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<Completion> made;
  std::vector<double> advantages;

  void add(const std::vector<int32_t>& prompt, const std::vector<int32_t>& completion) {
    prompts.push_back(prompt);
    made.push_back({completion, std::vector<double>(completion.size(), -4.5), true});
    advantages.push_back(0.25 * (static_cast<double>(prompts.size() * 7 % 5) - 1.75));
  }
  PolicyBatch batch(bool truncated_out = false) const {
    return {prompts, made, advantages, truncated_out, 8, kMaxSharers};
  }
};

Texts some_texts() {
  Texts out;
  const std::vector<int32_t> first{7, 8, 9, 10, 11}, second{40};
  out.add(first, {20, 21, 22, 23});
  out.add(first, {20, 21, 22, 23});
  out.add(first, {20, 21});
  out.add(first, {20, 30, 22});
  for (int32_t i = 0; i < 12; ++i) out.add(second, {50, 51, 52 + i / 5, 60, 61 + i % 3});
  out.add({7, 8, 12}, {20});
  out.add({40}, {50, 51});
  return out;
}

struct Learnt {
  std::vector<float> nll;
  double loss = 0;
  std::vector<std::vector<float>> gradients;
};

Learnt learnt(const LanguageModel& model, const PolicyBatch& batch, const PolicyObjective& objective, bool shares) {
  const std::shared_ptr<Backend> backend = make_backend("cpu");
  Parameters parameters(backend, model.weights(), model.shapes(), 0);
  const SharedTokens shared(batch, 0, batch.rows);
  const BatchShape shape{batch.rows, batch.tokens};
  Graph g;
  Gradients gradients(parameters, decoder_policy_loss(g, model.config(), shape, objective, nn::kF32,
                                                      shares ? shared.shape() : SharedShape()));
  if (objective.kind == nn::PolicyLoss::Dapo) gradients.set_scalar("tokens_of_update", 40);
  shares ? shared.give(gradients, false) : batch.give(gradients, 0, batch.rows, false);
  Learnt out;
  out.loss = gradients.run();
  if (shares) {
    out.nll.resize(batch.ids.size());
    shared.put(gradients.get("nll"), out.nll);
  } else {
    out.nll = gradients.get("nll");
  }
  for (const Parameter& p : parameters.all()) out.gradients.push_back(parameters.values(p.grad, p.count()));
  return out;
}

TEST(SharedTokens, TheBitsAndGradientsOfWholeRows) {
  for (const size_t number : {0U, 2U})
    for (const nn::PolicyLoss kind :
         {nn::PolicyLoss::DrGrpo, nn::PolicyLoss::Grpo, nn::PolicyLoss::Bnpo, nn::PolicyLoss::Dapo}) {
      if (sanitized() && kind != nn::PolicyLoss::Dapo) continue;  // it covers what the others do
      const auto model = recorded_model(number);
      const PolicyBatch batch = some_texts().batch();
      const PolicyObjective objective{kind, {}, 5};
      const Learnt want = learnt(*model, batch, objective, false), got = learnt(*model, batch, objective, true);
      for (size_t i = 0; i < batch.target.size(); ++i)
        if (batch.target[i] >= 0) {
          EXPECT_EQ(got.nll[i], want.nll[i]) << i;
        }
      EXPECT_NEAR(got.loss, want.loss, 1e-6 * std::abs(want.loss) + 1e-9);
      ASSERT_EQ(got.gradients.size(), want.gradients.size());
      for (size_t p = 0; p < want.gradients.size(); ++p) {
        EXPECT_GT(largest_magnitude(want.gradients[p]), 0) << p;
        EXPECT_TRUE(close_to_largest(got.gradients[p], want.gradients[p], 2e-5))
            << p << " of loss " << static_cast<int>(kind);
      }
    }
}

// Only distinct tokens are computed: no beginning twice among rows that may share, with little rounding up.
TEST(SharedTokens, ComputesWhatDiffers) {
  const PolicyBatch batch = some_texts().batch();
  std::set<std::pair<int64_t, std::vector<int32_t>>> beginnings;
  int64_t places = 0;
  for (int64_t r = 0; r < batch.rows; ++r) {
    const auto row = static_cast<size_t>(r);
    const auto begin = batch.ids.begin() + r * batch.tokens;
    places += batch.lengths[row];
    for (int64_t n = 1; n <= batch.lengths[row]; ++n) beginnings.insert({batch.alike[row], {begin, begin + n}});
  }
  const SharedShape shape = SharedTokens(batch, 0, batch.rows).shape();
  EXPECT_GE(shape.tokens, std::ssize(beginnings));
  EXPECT_LT(shape.tokens, std::ssize(beginnings) + 64);
  EXPECT_LT(shape.tokens, places);
  EXPECT_GE(shape.targets, batch.counted());
  EXPECT_LT(shape.texts, batch.rows);
  // Rows of a prompt stay together, in groups of kMaxSharers.
  std::set<int64_t> seen;
  for (size_t r = 0; r < batch.alike.size(); ++r) {
    EXPECT_LE(std::ranges::count(batch.alike, batch.alike[r]), kMaxSharers);
    if (r > 0 && batch.alike[r] == batch.alike[r - 1]) continue;
    EXPECT_TRUE(seen.insert(batch.alike[r]).second) << r;
  }
}

// Nothing to learn in a part of the batch: a plan with one target, which does not count.
TEST(SharedTokens, WithoutTargets) {
  Texts texts;
  texts.add({7, 8}, {9, 10});
  texts.made[0].ended = false;
  const PolicyBatch batch = texts.batch(true);
  EXPECT_EQ(batch.counted(), 0);
  const Learnt got = learnt(*recorded_model(0), batch, {nn::PolicyLoss::DrGrpo, {}, 5}, true);
  EXPECT_EQ(got.loss, 0);
  for (const std::vector<float>& gradient : got.gradients)
    EXPECT_TRUE(std::ranges::all_of(gradient, [](float x) { return x == 0; }));
}

TEST(SharedTokens, ErrorsNameTheThing) {
  Graph g;
  const DecoderConfig c;
  const auto numbers = [&](const char* name, int64_t n) { return input(g, name, DType::I32, {n}); };
  const SharedBeginnings texts{2, 4, numbers("at", 8), numbers("of", 5), numbers("position", 5)};
  EXPECT_NO_THROW(decoder_hidden(c, numbers("tokens", 5), texts, nn::kF32));
  const auto refused = [&](const Expr& tokens, const SharedBeginnings& of) -> std::string {
    try {
      decoder_hidden(c, tokens, of, nn::kF32);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Usage);
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(refused(numbers("tokens", 6), texts),
            "[decoder] expected tokens [5] and as many positions, got [6] and [5]");
  SharedBeginnings other = texts;
  other.position = numbers("position", 6);
  EXPECT_EQ(refused(numbers("tokens", 5), other),
            "[decoder] expected tokens [5] and as many positions, got [5] and [6]");
  other = texts;
  other.place_of = numbers("of", 6);
  EXPECT_EQ(refused(numbers("tokens", 5), other),
            "[decoder] expected tokens [6] and as many positions, got [5] and [5]");
  other = texts;
  other.batch = 3;
  EXPECT_THAT(refused(numbers("tokens", 5), other), testing::HasSubstr("a token for each place, got 4 and [8]"));
}

}  // namespace
}  // namespace tenon::train
