// Texts and conversations through the command line.
#include <csignal>
#include <fstream>

#include "tests/cli/cli.h"
#include "tests/language/language_fixtures.h"

namespace cli {
namespace {
using nlohmann::json;

class CliText : public CliTest {
 protected:
  // A model of random weights whose texts mean nothing, in a folder of the test's own.
  static const std::filesystem::path& small() {
    static const language_test::Folder all;
    static const bool written = [] {
      language_test::write_model(language_test::recorded()["cases"][0], all);
      all.write("tokenizer_config.json",
                R"({"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}assistant:"})");
      all.write("generation_config.json", R"({"do_sample": true, "temperature": 0.7, "eos_token_id": [3, 4]})");
      return true;
    }();
    static_cast<void>(written);
    return all.path();
  }
  static std::vector<std::string> with(std::vector<std::string> arguments) {
    for (const std::string& a : {std::string("-m"), small().string(), std::string("--type"), std::string("f32"),
                                 std::string("--threads"), std::string("1")})
      arguments.push_back(a);
    return arguments;
  }
  std::function<void()> reading(const std::string& text) const {
    std::ofstream(folder() / "input") << text;
    const std::string name = (folder() / "input").string();
    return [name] {
      if (!std::freopen(name.c_str(), "r", stdin)) std::abort();
    };
  }
};

TEST_F(CliText, TheSameSeedTheSameText) {
  const auto text = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"complete", "Ann has three apples", "--max-tokens", "24", "--json"});
    const Finished f = tenon(with(more));
    EXPECT_EQ(f.code, 0) << f.err;
    return json::parse(f.out);
  };
  const json one = text({"-s", "5"}), again = text({"-s", "5"}), other = text({"-s", "6"});
  EXPECT_EQ(one["text"], again["text"]);
  EXPECT_NE(one["text"], other["text"]);
  EXPECT_EQ(one["seed"], 5);
  const json greedy = text({"--temperature", "0", "--logprobs"});
  EXPECT_FALSE(greedy.contains("seed"));
  EXPECT_EQ(greedy["tokens"].size(), greedy["usage"]["completion_tokens"]);
  std::string joined;
  for (const json& t : greedy["tokens"]) {
    EXPECT_LE(t["logprob"].get<double>(), 0);
    joined += t["text"];
  }
  EXPECT_EQ(joined, greedy["text"]);
  // Without JSON the same text, and from standard input.
  const auto plain = with({"complete", "-", "--max-tokens", "24", "--temperature", "0", "-q"});
  EXPECT_EQ(tenon(plain, {}, reading("Ann has three apples")).out, greedy["text"].get<std::string>() + "\n");
}

// What follows the text of a flag is the prompt.
TEST_F(CliText, AStopInFrontOfThePrompt) {
  const Finished f =
      tenon(with({"complete", "--max-tokens", "2", "--stop", "x", "--stop", "y", "Ann has three apples"}));
  EXPECT_EQ(f.code, 0) << f.err;
}

TEST_F(CliText, SeveralTextsSideBySide) {
  const auto lines = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"complete", "--max-tokens", "9", "--json", "-q"});
    const Finished f = tenon(with(more));
    EXPECT_EQ(f.code, 0) << f.err;
    std::istringstream in(f.out);
    std::vector<json> out;
    for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
    return out;
  };
  std::ofstream(folder() / "prompt") << "four";
  const std::string file = (folder() / "prompt").string();
  const std::vector<json> together =
      lines({"-p", "one two", "-p", "three", "--prompt-file", file, "-s", "5", "--batch-size", "2"});
  ASSERT_EQ(together.size(), 3U);
  EXPECT_EQ(together[0]["text"], lines({"one two", "-s", "5"})[0]["text"]);
  EXPECT_EQ(together[1]["text"], lines({"three", "-s", "6"})[0]["text"]);
  EXPECT_EQ(together[2]["text"], lines({"four", "-s", "7"})[0]["text"]);
  EXPECT_EQ(together[2]["seed"], 7);
  const Finished plain = tenon(with({"complete", "-p", "one", "-p", "two", "--max-tokens", "9", "-q"}));
  EXPECT_EQ(std::ranges::count(plain.out, '\n'), 2) << "a line a text";
  expect_error(2, with({"complete", "-p", "a", "-p", "b", "--logprobs"}), {"--logprobs", "--json"});
  expect_error(2, with({"complete", "-p", "-", "--prompt-file", "-"}), {"standard input", "2 times"});
  expect_error(2, with({"complete", "-p", "a", "-p", "", "--json"}), {"prompt", "no tokens"});
  expect_error(2, with({"complete", "a", "--batch-size", "0"}), {"--batch-size"});
}

TEST_F(CliText, WhatCannotBeWritten) {
  expect_error(2, with({"complete"}), {"prompt", "missing"});
  expect_error(2, with({"complete", "a", "-p", "b"}), {"prompt", "more than one way"});
  expect_error(2, with({"complete", ""}), {"prompt", "no tokens"});
  expect_error(2, with({"complete", "a\xff"}), {"prompt", "not UTF-8", "byte 1"});
  expect_error(2, with({"complete", "a", "--context", "513"}), {"context", "513", "512 positions"});
  expect_error(2, with({"complete", "one two three four five six", "--context", "4"}), {"prompt", "context has 4"});
  const Finished slid =
      tenon(with({"complete", "one two three four five six", "--context", "4", "--slide", "--max-tokens", "9", "-q"}));
  EXPECT_EQ(slid.code, 0) << slid.err;
  for (const auto& [flag, value] : {std::pair{"--temperature", "nan"},
                                    {"--temperature", "-1"},
                                    {"--top-p", "0"},
                                    {"--top-p", "1.1"},
                                    {"--min-p", "2"},
                                    {"--top-k", "-1"},
                                    {"--stop", ""},
                                    {"--repetition-penalty", "0"},
                                    {"--max-tokens", "-1"},
                                    {"--seed", "-2"}})
    expect_error(2, with({"complete", "a", flag, value}), {flag});
  expect_error(2, with({"complete", "a", "--temperature", "0", "--top-k", "5"}), {"top-k", "temperature 0"});
  expect_error(3, {"complete", "a", "-m", "random:qwen2.5-0.5b"}, {"tokenizer"});
  expect_error(3, {"complete", "a", "-m", "nowhere"}, {"nowhere"});
  expect_error(3, {"complete", "a", "-m", model()}, {"language model"});
}

// Without -m, and by its name.
TEST_F(CliText, TheEmbeddedModelAnswers) {
  const std::string question = "Ann has 3 apples and buys 4. How many?", answer = "3+4=7\n#### 7";
  for (const std::vector<std::string>& named : {std::vector<std::string>{}, {"-m", "sums"}}) {
    std::vector<std::string> command{"complete", question, "--json"};
    command.insert(command.end(), named.begin(), named.end());
    const Finished f = tenon(command);
    ASSERT_EQ(f.code, 0) << f.err;
    const json j = json::parse(f.out);
    EXPECT_EQ(j["model"], "sums");
    EXPECT_EQ(j["text"], "\n" + answer);
    EXPECT_EQ(j["finish_reason"], "stop");
  }
  EXPECT_EQ(tenon({"chat", "-q"}, {}, reading(question + "\n")).out, answer + "\n");
  expect_error(3, {"complete", question, "-m", "sum"}, {"did you mean", "sums"});
  expect_error(3, {"complete", question, "-m", "default-model"}, {"cannot write text"});
  expect_error(3, {"generate", "a red circle", "-m", "sums"}, {"cannot draw pictures"});
}

// A folder of that name comes first.
TEST_F(CliText, AFolderComesBeforeAnEmbeddedModel) {
  std::filesystem::copy(small(), folder() / "sums");
  const Finished f = tenon({"complete", "Ann", "-m", "sums", "--max-tokens", "2", "--json"});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_TRUE(json::parse(f.out).contains("seed")) << "its generation_config.json draws";
}

// Caches begin as zeros there too.
TEST_F(CliText, EveryLaunchAgreesWithTheOracle) {
  for (const char* part : {"decode", "prefill", "token", "rollout"}) {
    const Finished f = tenon(with({"verify", "--no-parity", "--part", part, "--json"}));
    EXPECT_EQ(f.code, 0) << part << f.out << f.err;
  }
}

TEST_F(CliText, AConversationLineByLine) {
  const auto command = with({"chat", "--max-tokens", "6", "--temperature", "0", "--json", "--system", "be brief"});
  const Finished f = tenon(command, {}, reading("hello\n\nhello\n/reset\nhello"));
  ASSERT_EQ(f.code, 0) << f.err;
  std::istringstream lines(f.out);
  std::vector<json> turns;
  for (std::string line; std::getline(lines, line);) turns.push_back(json::parse(line));
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_EQ(turns[0]["text"], turns[2]["text"]) << "reset forgets";
  EXPECT_EQ(turns[0]["usage"]["prompt_tokens"], turns[2]["usage"]["prompt_tokens"]);
  EXPECT_GT(turns[1]["usage"]["prompt_tokens"], turns[0]["usage"]["prompt_tokens"]);
  EXPECT_GT(turns[1]["usage"]["cached_tokens"], 0) << "what was read is not read again";
}

TEST_F(CliText, APartOverACacheOfAnyLength) {
  const Finished f = tenon({"explain", "-m", "random:qwen2.5-0.5b", "--part", "decode", "--context", "8192", "--json"});
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_NE(f.out.find("k [1,2,8192,64]"), std::string::npos) << f.out.substr(0, 400);
  expect_error(2, {"explain", "-m", "random:qwen2.5-0.5b", "--part", "decode", "--context", "32769"},
               {"--context", "32768 positions"});
}

}  // namespace
}  // namespace cli
