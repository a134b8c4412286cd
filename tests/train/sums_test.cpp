// The generator of word problems: its guarantees about answers, splits and order.
#include "tenon/train/sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "tenon/core/error.h"

namespace tenon {
namespace {

constexpr uint64_t kSeed = 7;

// The numbers in a text, in order.
std::vector<int> numbers_in(const std::string& text) {
  std::vector<int> out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    if (end > i) out.push_back(std::stoi(text.substr(i, end - i)));
    i = std::max(end, i + 1);
  }
  return out;
}

TEST(Sums, StepsAreRightAndTheLastLineIsTheResult) {
  for (int64_t i = 0; i < 5000; ++i) {
    const Problem p = sums_problem(kSeed, i);
    const std::vector<int> given = numbers_in(p.prompt);
    EXPECT_GE(given.size(), 2u) << p.prompt;
    std::istringstream lines(p.answer);
    int last = -1, left = 0, right = 0, result = 0;
    char sign = 0, equals = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("####")) {
        EXPECT_EQ(line, "#### " + std::to_string(last)) << p.answer;
        EXPECT_EQ(lines.peek(), EOF) << p.answer;
        continue;
      }
      std::istringstream(line) >> left >> sign >> right >> equals >> result;
      EXPECT_EQ(result, sign == '+' ? left + right : sign == '-' ? left - right : left * right) << p.answer;
      EXPECT_GE(result, 0) << p.answer;
      EXPECT_LE(result, 200) << p.answer;
      for (const int x : {left, right})
        EXPECT_TRUE(std::ranges::count(given, x) > 0 || x == last) << x << " in\n" << p.prompt << "\n" << p.answer;
      last = result;
    }
    EXPECT_GE(last, 0) << p.answer;
  }
}

TEST(Sums, NoPlaceholderIsLeft) {
  for (int64_t i = 0; i < 2000; ++i) {
    std::istringstream words(sums_problem(kSeed, i).prompt);
    for (std::string word; words >> word;) {
      while (!word.empty() && std::string(".,?").find(word.back()) != std::string::npos) word.pop_back();
      EXPECT_EQ(std::string("NMTabc").find(word), std::string::npos) << word << " in problem " << i;
    }
  }
}

TEST(Sums, AProblemDependsOnSeedAndIndexOnly) {
  const Problem at_nine = sums_problem(kSeed, 9);
  EXPECT_EQ(sums_problem(kSeed, 8).prompt == at_nine.prompt, false);
  EXPECT_EQ(sums_problem(kSeed, 9).prompt, at_nine.prompt);
  int same = 0;
  for (int64_t i = 0; i < 100; ++i) same += sums_problem(kSeed, i).prompt == sums_problem(kSeed + 1, i).prompt ? 1 : 0;
  EXPECT_LE(same, 2);
}

// The problems that models were trained on, and curves measured on, stay the same.
TEST(Sums, TheFirstProblemsAreKept) {
  EXPECT_EQ(sums_problem(0, 0).prompt, "Ola has 8 boxes of 3 balls. How many?");
  EXPECT_EQ(sums_problem(0, 0).answer, "8*3=24\n#### 24");
  EXPECT_EQ(sums_problem(0, 1).prompt, "Finn found 48 flowers, and Leo found 19 more than Finn. How many together?");
  EXPECT_EQ(sums_problem(0, 0, SumsSplit::HeldOut).prompt, "What is 54 - 2?");
}

TEST(Sums, NoQuestionIsInBothParts) {
  std::set<std::string> trained_on, held_out;
  for (int64_t i = 0; i < 20000; ++i) {
    trained_on.insert(sums_problem(1, i).prompt);
    held_out.insert(sums_problem(2, i, SumsSplit::HeldOut).prompt);
  }
  for (const std::string& question : held_out) EXPECT_FALSE(trained_on.contains(question)) << question;
  EXPECT_GT(held_out.size(), 10000u);
}

TEST(Sums, RefusesWhatIsNoProblem) {
  EXPECT_THROW(sums_problem(kSeed, -1), Error);
  EXPECT_THROW(parse_sums_split("test"), Error);
  EXPECT_EQ(parse_sums_split("held-out"), SumsSplit::HeldOut);
}

}  // namespace
}  // namespace tenon
