// Answers extracted from texts, rewards, advantages; rows of data and their order.
#include "tenon/train/rewards.h"

#include <gmock/gmock.h>

#include <set>

#include "tenon/core/error.h"
#include "tenon/train/problems.h"
#include "tests/support/cpu_seconds.h"
#include "tests/support/sanitized.h"

namespace tenon::train {
namespace {
using testing::ElementsAre;
using testing::HasSubstr;

std::string read(const std::string& text, Extractor e) { return extract_answer(text, e).value_or("none"); }

TEST(Rewards, CompatExtractorAsPublished) {
  const std::pair<const char*, const char*> cases[] = {{"so it is #### 18", "18"},
                                                       {"x = 5\nThe answer is: $42", "42"},
                                                       {"#### 1,080", "1"},
                                                       {"#### **12**", "none"},
                                                       {"\\boxed{7}", "7"},
                                                       {"3+5=8 done", "8"},
                                                       {"", "none"},
                                                       {"THE ANSWER IS -3.50 or = 4.", "4"},
                                                       {"\\BOXED{$9$}", "9"},
                                                       {"====== ", "none"}};
  for (const auto& [text, want] : cases) EXPECT_EQ(read(text, Extractor::Compat), want) << text;
}

TEST(Rewards, RobustExtractor) {
  const std::pair<const char*, const char*> cases[] = {{"#### 18", "18"},
                                                       {"#### 1,080", "1080"},
                                                       {"#### **12**", "12"},
                                                       {"####$ 18.50", "18.5"},
                                                       {"#### -0.0", "0"},
                                                       {"#### 007", "7"},
                                                       {"3+5=8", "none"},
                                                       {"#### 3\n#### 4\nso", "4"},
                                                       {"#### 3\n#### x", "3"},
                                                       {"#### 18.", "18"},
                                                       {"####", "none"},
                                                       {"####\n18", "none"},
                                                       {"#### .5", "none"},
                                                       {"######## 5", "5"},
                                                       {"#### 1,000,000.0", "1000000"}};
  for (const auto& [text, want] : cases) EXPECT_EQ(read(text, Extractor::Robust), want) << text;
  EXPECT_EQ(gold_answer(" 1,080 ", Extractor::Robust), "1080");
  for (const char* same : {"$7", "7%", "7.", "**7**", " $7.00 ", "so\n#### $7 apples"})
    EXPECT_EQ(gold_answer(same, Extractor::Robust), "7") << same;
  for (const char* none : {"a lot", "7 apples", "7 of 9", "B", "$", "", "7.5.1"})
    EXPECT_EQ(gold_answer(none, Extractor::Robust), std::nullopt) << none;
}

TEST(Rewards, TimeIsLinear) {
  for (const char* piece : {"####", "#### ", "=", "= ", "answer is ", "\\boxed{", "9", "#### 1,"}) {
    std::string text;
    while (text.size() < (sanitized() ? 200'000 : 2'000'000)) text += piece;
    for (const Extractor e : {Extractor::Robust, Extractor::Compat})
      EXPECT_LE(cpu_seconds_of([&] { extract_answer(text, e); }), sanitized() ? 20 : 1) << piece;
  }
}

TEST(Rewards, Kinds) {
  const auto worth = [](const char* reward, const char* text, int64_t tokens = 10) {
    return rewards_of(parse_rewards({reward}).at(0), std::vector<Judged>{{text, "3+4=7\n#### 7", tokens, 40}}).at(0);
  };
  EXPECT_EQ(worth("exact", "3+4=7\n#### 7.0"), 1);
  EXPECT_EQ(worth("exact", "#### 8"), 0);
  EXPECT_EQ(worth("compat", "so = 7"), 1);
  EXPECT_EQ(worth("compat", "so = 8"), 0.1);
  EXPECT_EQ(worth("compat", "who knows"), 0);
  EXPECT_EQ(worth("format", "so\n#### 8 \n\n"), 1);
  EXPECT_EQ(worth("format", "#### 8\nand"), 0);
  EXPECT_EQ(worth("length", ""), 0.75);
  EXPECT_EQ(rewards_text(parse_rewards({"exact", "format"}, {2, 0.5})), "exact=2,format=0.5");
  EXPECT_EQ(rewards_text(parse_rewards({"exact", "format"})), "exact=1,format=1");
  for (const char* bad : {"", "exakt", "exact=1", "exact "}) EXPECT_THROW(parse_rewards({bad}), Error) << bad;
  EXPECT_THROW(parse_rewards({"exact", "exact"}), Error);
  EXPECT_THROW(parse_rewards({"exact", "format"}, {1}), Error);
  EXPECT_THROW(parse_rewards({"exact"}, {std::numeric_limits<double>::infinity()}), Error);
}

TEST(Rewards, Advantages) {
  EXPECT_THAT(advantages({1, 0, 0, 1, 2, 2, 2, 2}, 4, ScaleRewards::None), ElementsAre(.5, -.5, -.5, .5, 0, 0, 0, 0));
  const std::vector<double> scaled = advantages({1, .1}, 2, ScaleRewards::Group);
  EXPECT_NEAR(scaled[0], .45 / (.9 / std::sqrt(2) + 1e-4), 1e-12);
  EXPECT_NEAR(scaled[1], -scaled[0], 1e-12);
  EXPECT_THAT(advantages({3, 4}, 1, ScaleRewards::Group), ElementsAre(0, 0));
  EXPECT_THROW(advantages({1, 2, 3}, 2, ScaleRewards::None), Error);
  // Equal rewards give exactly 0, whatever their sum is rounded to: an optimizer may divide by a gradient's size.
  for (const ScaleRewards scale : {ScaleRewards::None, ScaleRewards::Group})
    for (const double reward : {0.1, 1.0, -1e12 / 3})
      for (const size_t group : {3U, 6U, 8U, 49U})
        EXPECT_THAT(advantages(std::vector(group, reward), static_cast<int64_t>(group), scale), testing::Each(0.0))
            << reward << " " << group;
}

TEST(Problems, RowsOfData) {
  const auto rows = parse_problems(
      "{\"question\":\"a?\",\"answer\":\"#### 1\"}\n\n{\"prompt\":\"b\",\"answer\":\"2\",\"x\":1}\r\n", "data");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].prompt, "a?");
  EXPECT_EQ(rows[1].answer, "2");
  EXPECT_THAT(column_names(rows), ElementsAre("x"));
  EXPECT_THROW(column_names({{"a", "b", "[1]", "data:7"}}), Error);
  const std::pair<const char*, const char*> bad[] = {{"", "no problems"},
                                                     {"\n \n", "no problems"},
                                                     {"{\"prompt\":\"a\"}", "data:1"},
                                                     {"\n{\"answer\":\"a\"}", "data:2] has no 'prompt' or 'question'"},
                                                     {"{\"prompt\":1,\"answer\":\"\"}", "expected a string"},
                                                     {"{\"prompt\":\"a\",\"answer\":\"2\"", "data:1"},
                                                     {"[1]", "expected an object"},
                                                     {"{\"prompt\":\"\",\"answer\":\"2\"}", "empty prompt"},
                                                     {"{\"prompt\":\"\xff\",\"answer\":\"2\"}", "data:1"}};
  for (const auto& [text, part] : bad) {
    try {
      parse_problems(text, "data");
      ADD_FAILURE() << "not refused: " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Usage);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  }
}

TEST(Problems, EveryRoundHasAllInAnotherOrder) {
  std::vector<Problem> all;
  for (int i = 0; i < 20; ++i) all.push_back({std::to_string(i), ""});
  const ProblemAt at = shuffled(all, 7), again = shuffled(all, 7), other = shuffled(all, 8);
  std::vector<std::string> rounds[3];
  bool differs = false;
  for (int64_t k = 0; k < 60; ++k) {
    rounds[k / 20].push_back(at(k).prompt);
    differs = differs || other(k).prompt != at(k).prompt;
  }
  for (const auto& r : rounds) EXPECT_EQ(std::set(r.begin(), r.end()).size(), 20U);
  EXPECT_NE(rounds[0], rounds[1]);
  EXPECT_TRUE(differs);
  EXPECT_EQ(again(45).prompt, rounds[2][5]);  // without those before it
  EXPECT_EQ(all[static_cast<size_t>(shuffled_index(45, 20, 7))].prompt, rounds[2][5]);
}

}  // namespace
}  // namespace tenon::train
