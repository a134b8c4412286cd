// Emphasis: the examples of AUTOMATIC1111's parser, and edge cases of the syntax.
#include "tenon/io/prompt_weights.h"

#include <chrono>

#include "tests/io/io_test_tools.h"

namespace {
using namespace io_test;
using namespace tenon;

// "text@weight|..." with four digits.
std::string parsed(const std::string& prompt) {
  std::string out;
  for (const WeightedText& p : parse_prompt_weights(prompt)) {
    char weight[32];
    std::snprintf(weight, sizeof weight, "@%.4g", static_cast<double>(p.weight));
    out += (out.empty() ? "" : "|") + p.text + weight;
  }
  return out;
}

TEST(PromptWeights, Brackets) {
  EXPECT_EQ(parsed("normal text"), "normal text@1");
  EXPECT_EQ(parsed("an (important) word"), "an @1|important@1.1| word@1");
  EXPECT_EQ(parsed("(unbalanced"), "unbalanced@1.1");
  EXPECT_EQ(parsed("[a]"), "a@0.9091");
  EXPECT_EQ(parsed("((a)) [[b]]"), "a@1.21| @1|b@0.8264");
  EXPECT_EQ(parsed("(a:1.5)(b:0.5)"), "a@1.5|b@0.5");
  EXPECT_EQ(parsed("(a:-1)"), "a@-1");
  EXPECT_EQ(parsed("(a : +.25 )"), "a @0.25");
  EXPECT_EQ(parsed("(unnecessary)(parens)"), "unnecessaryparens@1.1");
  EXPECT_EQ(parsed("a (((house:1.3)) [on] a (hill:0.5), sun, (((sky)))."),
            "a @1|house@1.573| @1.1|on@1| a @1.1|hill@0.55|, sun, @1.1|sky@1.464|.@1.1");
}

TEST(PromptWeights, EscapesAndPlainPunctuation) {
  EXPECT_EQ(parsed(R"(\(literal\])"), "(literal]@1");
  EXPECT_EQ(parsed(R"(a \\ b)"), R"(a \ b@1)");
  EXPECT_EQ(parsed(R"(a\b\)"), "ab@1");
  EXPECT_EQ(parsed(R"((a\(1\):1.2))"), "a(1)@1.2");
  EXPECT_EQ(parsed("a:1.5) b] c"), "a:1.5) b] c@1");
  EXPECT_EQ(parsed("(a: b)"), "a: b@1.1");
  EXPECT_EQ(parsed("[a:1.5]"), "a:1.5@0.9091");
  EXPECT_EQ(parsed("ratio 16:9 at 10:30"), "ratio 16:9 at 10:30@1");
  EXPECT_EQ(parsed("(日本:1.3)"), "日本@1.3");
}

TEST(PromptWeights, NothingButBrackets) {
  for (const char* prompt : {"", "()", "([", "(:1.5)", "\\"}) EXPECT_EQ(parsed(prompt), "@1") << prompt;
}

TEST(PromptWeights, Errors) {
  expect_error(ErrorKind::Usage, "the weight '1.2.3' is not a number", [] { parse_prompt_weights("(a:1.2.3)"); });
  expect_error(ErrorKind::Usage, "the weight '.' is not a number", [] { parse_prompt_weights("(a:.)"); });
  expect_error(ErrorKind::Usage, "is not a number", [] { parse_prompt_weights("(a:" + std::string(400, '9') + ")"); });
  expect_error(ErrorKind::Usage, "nested deeper than 100 levels", [] { parse_prompt_weights(std::string(101, '(')); });
}

// The bound is on what a part's brackets multiply to, whatever each of them is.
TEST(PromptWeights, AreBounded) {
  EXPECT_EQ(parsed("(a:100000)(b:-100000)"), "a@1e+05|b@-1e+05");
  EXPECT_EQ(parsed("((a:1000000000):0.0001)"), "a@1e+05");
  EXPECT_EQ(parsed(std::string(100, '(') + "a"), "a@1.378e+04") << "the deepest brackets";
  const auto refused = [](const std::string& prompt, const std::string& words) {
    expect_error(ErrorKind::Usage, words, [&] { parse_prompt_weights(prompt); });
  };
  refused("(a:100001)", "the weight of 'a' must be a number from -100000 to 100000, got 100001");
  refused("a ((red:-1000) circle:1000)", "the weight of 'red' must be a number from -100000 to 100000, got -1e+06");
  refused("(a:" + std::string(38, '9') + ")", "the weight of 'a' must be a number from");
  std::string nested = std::string(90, '(') + "a";
  for (int i = 0; i < 90; ++i) nested += ":99999999)";
  refused(nested, "got inf");
  refused("(" + nested + ":0)", "nan");
  refused("(" + std::string(500, 'a') + ":100001)", "aaa' must be");
}

TEST(PromptWeights, WordsThatEndLikeNetworksTakeNoQuadraticTime) {
  std::string prompt;
  for (int i = 0; i < 12000; ++i) prompt += "xembedding:";
  const auto start = std::chrono::steady_clock::now();
  refuse_extra_networks(prompt, "prompt");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

}  // namespace
