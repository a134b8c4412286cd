// The embedded language model through the whole engine: problems it was never trained on. It should be right in about
// half of them, so that further training has something to teach.
#include <gtest/gtest.h>

#include <set>

#include "tenon/pipelines/text_generator.h"
#include "tenon/train/sums.h"

namespace tenon::grader {
namespace {

constexpr uint64_t kProblemSeed = 5;  // not the one of training
constexpr int64_t kProblems = 200;
constexpr int64_t kMaxTokens = 48;

std::unique_ptr<TextGenerator> sums_model(DType type) {
  TextOptions options;
  options.type = type;
  return open_as<TextGenerator>("", options);
}

TextResult answer(TextGenerator& generator, const std::string& prompt, double temperature = 0, uint64_t seed = 0) {
  TextRequest r;
  r.prompt = generator.model().tokenizer().encode(prompt);
  r.max_tokens = kMaxTokens;
  SamplingChoice choice;
  choice.temperature = temperature;
  r.sampling = chosen(generator.model().sampling(), choice);
  r.seed = seed;
  return generator.generate(r);
}

// The text after the last "#### ", if the model's own end follows it; else empty.
std::string result_of(const TextResult& r) {
  const size_t at = r.text.rfind("#### ");
  return at == std::string::npos || r.end != TextEnd::StopToken ? "" : r.text.substr(at + 5);
}
std::string result_of(const Problem& p) { return p.answer.substr(p.answer.rfind("#### ") + 5); }

class EmbeddedLanguageModel : public testing::TestWithParam<DType> {};

TEST_P(EmbeddedLanguageModel, IsRightInAboutHalfOfWhatItWasNeverTrainedOn) {
  const std::unique_ptr<TextGenerator> generator = sums_model(GetParam());
  int right = 0, with_result = 0;
  for (int64_t i = 0; i < kProblems; ++i) {
    const Problem p = sums_problem(kProblemSeed, i, SumsSplit::HeldOut);
    const std::string found = result_of(answer(*generator, p.prompt));
    right += found == result_of(p) ? 1 : 0;
    with_result += found.empty() ? 0 : 1;
  }
  std::cout << right << " of " << kProblems << " right, " << with_result << " with a result and an end\n";
  EXPECT_GE(right, kProblems * 40 / 100);
  EXPECT_LE(right, kProblems * 60 / 100);
  EXPECT_GE(with_result, kProblems * 98 / 100);
}

INSTANTIATE_TEST_SUITE_P(Types, EmbeddedLanguageModel, testing::Values(DType::F32, DType::BF16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

// Answers drawn for the same question differ: otherwise there would be nothing to choose between.
TEST(EmbeddedLanguageModels, AnswersDrawnDiffer) {
  const std::unique_ptr<TextGenerator> generator = sums_model(DType::F32);
  constexpr int kQuestions = 25;
  constexpr uint64_t kAnswers = 4;
  int different = 0, mixed = 0;
  for (int64_t i = 0; i < kQuestions; ++i) {
    const Problem p = sums_problem(kProblemSeed, i, SumsSplit::HeldOut);
    std::set<std::string> texts;
    uint64_t right = 0;
    for (uint64_t seed = 0; seed < kAnswers; ++seed) {
      const TextResult r = answer(*generator, p.prompt, 1, seed);
      texts.insert(r.text);
      right += result_of(r) == result_of(p) ? 1 : 0;
    }
    different += texts.size() > 1 ? 1 : 0;
    mixed += right > 0 && right < kAnswers ? 1 : 0;
  }
  std::cout << different << " of " << kQuestions << " groups with different answers, " << mixed
            << " with right and wrong\n";
  EXPECT_GE(different, kQuestions / 4);
  EXPECT_GE(mixed, kQuestions / 5) << "groups with right and wrong answers";
}

TEST(EmbeddedLanguageModels, AnswersInAConversationAsInAText) {
  const std::unique_ptr<TextGenerator> generator = sums_model(DType::F32);
  const std::string question = "What is 3 + 4?";
  const auto ids = generator->model().encode_chat({{{"role", "user"}, {"content", question}}});
  EXPECT_EQ(ids, generator->model().tokenizer().encode(question + "\n"));
}

TEST(EmbeddedLanguageModels, IsSmall) {
  const auto model = LanguageModel::open("sums");
  int64_t bytes = 0;
  for (const auto& [name, shape] : model->shapes()) bytes += shape.numel() * 2;
  EXPECT_LE(bytes, 8 << 20);
}

}  // namespace
}  // namespace tenon::grader
