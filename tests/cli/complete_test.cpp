// Text generation and conversations through the command line.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "tests/cli/cli.h"
#include "tests/language/language_fixtures.h"

namespace cli {
namespace {
using nlohmann::json;

class CliText : public CliTest {
 protected:
  // A model of random weights, whose texts are meaningless, in the test's own folder.
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
  // Runs with a terminal at which this is typed, and which shows `err`.
  Finished at_terminal(const std::vector<std::string>& arguments, const std::string& typed) const {
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    const std::string name = ptsname(terminal), all = typed + "\x04";
    const int side = open(name.c_str(), O_RDWR | O_NOCTTY);  // while it is open, written data is kept
    EXPECT_EQ(write(terminal, all.data(), all.size()), std::ssize(all));
    Finished f = tenon(arguments, {}, [side] {
      if (dup2(side, STDIN_FILENO) < 0 || dup2(side, STDERR_FILENO) < 0) std::abort();
    });
    f.err.resize(65536);
    f.err.resize(static_cast<size_t>(std::max<ssize_t>(read(terminal, f.err.data(), f.err.size()), 0)));
    close(side);
    close(terminal);
    return f;
  }
  static std::vector<std::string> lines_of(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
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
  // The same text without JSON, and from standard input.
  const auto plain = with({"complete", "-", "--max-tokens", "24", "--temperature", "0", "-q"});
  EXPECT_EQ(tenon(plain, {}, reading("Ann has three apples")).out, greedy["text"].get<std::string>() + "\n");
}

// The argument after a flag's text is the prompt.
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
  std::ofstream(folder() / "prompt") << "\xef\xbb\xbf"
                                        "four";
  const std::string file = (folder() / "prompt").string();
  const std::vector<json> together =
      lines({"-p", "one two", "-p", "three", "-p", "four", "-s", "5", "--batch-size", "2"});
  ASSERT_EQ(together.size(), 3U);
  EXPECT_EQ(together[0]["text"], lines({"one two", "-s", "5"})[0]["text"]);
  EXPECT_EQ(together[1]["text"], lines({"three", "-s", "6"})[0]["text"]);
  EXPECT_EQ(together[2]["seed"], 7);
  const std::vector<json> files = lines({"--prompt-file", file, "--prompt-file", file, "-s", "6"});
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[1]["text"], together[2]["text"]);
  const Finished plain = tenon(with({"complete", "-p", "one", "-p", "two", "--max-tokens", "9", "-q"}));
  EXPECT_EQ(std::ranges::count(plain.out, '\n'), 2) << "a line a text";
  expect_error(2, with({"complete", "-p", "a", "-p", "b", "--logprobs"}), {"--logprobs", "--json"});
  expect_error(2, with({"complete", "-p", "-", "-p", "-"}), {"standard input", "2 times"});
  expect_error(2, with({"complete", "-p", "a", "--prompt-file", file}), {"prompt", "more than one way"});
  const std::string largest = "9223372036854775807";
  expect_error(2, with({"complete", "-p", "a", "-p", "b", "-s", largest}), {"--seed", "2 texts", largest});
  expect_error(2, with({"complete", "a", "--batch-size", "0"}), {"--batch-size"});
}

// A prompt that cannot be continued costs no other: too long, empty, not UTF-8.
TEST_F(CliText, APromptThatIsRefused) {
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"complete", "--max-tokens", "9", "-s", "5", "--context", "64", "-q"});
    return tenon(with(more));
  };
  const std::string longer(600, 'x');
  const Finished f = run({"-p", "a\xff", "-p", "one", "-p", longer, "-p", "", "-p", "two"});
  EXPECT_EQ(f.code, 2);
  for (const char* part :
       {"prompt 1: [prompt] is not UTF-8", "prompt 3: [prompt] ", "leave no room", "prompt 4: [prompt] has no tokens"})
    EXPECT_NE(f.err.find(part), std::string::npos) << f.err;
  EXPECT_EQ(std::ranges::count(f.err, '\n'), 3) << f.err;
  const Finished good = run({"-p", "x", "-p", "one", "-p", "x", "-p", "x", "-p", "two"});
  std::vector<std::string> lines;
  std::istringstream in(good.out);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(f.out, lines[1] + "\n" + lines[4] + "\n") << "each with the seed of its place";
  expect_error(2, with({"complete", "-p", "a\xff"}), {"prompt", "not UTF-8"});
}

// Each is printed when it is done: an interrupt leaves those before it.
TEST_F(CliText, FinishedTextsStay) {
  const std::filesystem::path out = folder() / "texts";
  std::vector<std::string> command{"complete", "--max-tokens", "100", "--batch-size", "1", "--json"};
  for (int i = 0; i < 1000; ++i) command.insert(command.end(), {"-p", "one two"});
  Process process(with(command), folder(), {}, [&] {
    if (!std::freopen(out.c_str(), "w", stdout)) std::abort();
  });
  EXPECT_TRUE(process.wait_for_lines(out, 2, 60));
  process.signal(SIGINT);
  EXPECT_EQ(process.finish().code, 130);
  EXPECT_LT(lines_of(out).size(), 1000U);
  for (const std::string& line : lines_of(out)) EXPECT_TRUE(json::parse(line).contains("text")) << line;
}

// A text whose scores are not finite costs no other, and a conversation at a terminal goes on after it.
TEST_F(CliText, ATextThatFails) {
  const language_test::Folder sick;
  json untied = language_test::recorded()["cases"][1];
  untied["config"]["eos_token_id"] = nullptr;
  language_test::write_model(untied, sick);
  sick.write("tokenizer_config.json", R"({"chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}"})");
  const tenon::SafetensorsFile file = tenon::SafetensorsFile::open(sick.path() / "model.safetensors");
  std::vector<tenon::TensorData> all;
  std::vector<float> embedding;
  for (const auto& [name, t] : file.tensors()) {
    all.push_back({name, t.dtype, t.shape, {t.data, t.size}});
    if (name != "model.embed_tokens.weight") continue;
    embedding.assign(reinterpret_cast<const float*>(t.data), reinterpret_cast<const float*>(t.data + t.size));
    const int32_t bad = *tenon::ByteLevelTokenizer::from_folder(sick.path()).id_of("~");
    std::fill_n(embedding.begin() + bad * t.shape[1], t.shape[1], std::nanf(""));
    all.back().data = std::as_bytes(std::span(embedding));
  }
  tenon::write_safetensors(sick.path() / "more", all);
  std::filesystem::rename(sick.path() / "more", sick.path() / "model.safetensors");
  const std::vector<std::string> of{"-m", sick.path().string(), "--type", "f32",    "--threads",
                                    "1",  "--max-tokens",       "5",      "--json", "-q"};
  const auto sickly = [&](std::vector<std::string> verb) {
    verb.insert(verb.end(), of.begin(), of.end());
    return verb;
  };
  const Finished well = tenon(sickly({"complete", "-p", "one", "-p", "two"}));
  const Finished f = tenon(sickly({"complete", "-p", "one", "-p", "a~b", "-p", "two"}));
  EXPECT_EQ(f.code, 5) << f.err;
  EXPECT_NE(f.err.find("prompt 2: "), std::string::npos) << f.err;
  EXPECT_EQ(f.out, well.out);
  EXPECT_EQ(tenon(sickly({"complete", "-p", "one", "-p", "a~b", "-p", "two", "--batch-size", "1"})).out, well.out)
      << "nor one that gets its part of the cache";
  const Finished talk = at_terminal(sickly({"chat"}), "one\na~b\none\n");
  EXPECT_EQ(talk.code, 0) << talk.err;
  EXPECT_NE(talk.err.find("contain a NaN"), std::string::npos) << talk.err;
  EXPECT_EQ(std::ranges::count(talk.out, '\n'), 2) << talk.out;
}

// Folders, GGUF files and embedded models; problems are listed.
TEST_F(CliText, InspectsLanguageModels) {
  const auto looked_at = [&](const std::string& model, int code = 0) {
    const Finished f = tenon({"inspect", model, "--json"});
    EXPECT_EQ(f.code, code) << f.err;
    return json::parse(f.out);
  };
  const json folder = looked_at(small().string());
  EXPECT_EQ(folder["kind"], "transformers folder");
  EXPECT_NE(folder["architecture"].get<std::string>().find("qwen2, width 112, 3 layers"), std::string::npos);
  const json& decoder = folder["components"]["decoder"];
  EXPECT_EQ(decoder["tensors"].size(), language_test::recorded()["cases"][0]["shapes"].size());
  EXPECT_EQ(decoder["dtypes"]["f32"], decoder["tensors"].size());
  EXPECT_TRUE(decoder["missing"].empty());
  EXPECT_TRUE(folder["notes"].empty());

  const json gguf = looked_at(std::string(TENON_SOURCE_DIR) + "/tests/fixtures/gguf/llama.gguf", 3);
  EXPECT_EQ(gguf["kind"], "GGUF file");
  EXPECT_EQ(gguf["components"]["decoder"]["dtypes"]["Q4_1"], 1);
  EXPECT_EQ(gguf["components"]["decoder"]["missing"].size(), 2U) << "biases of keys and values";
  EXPECT_EQ(gguf["unexpected"], json({"rope_freqs.weight"}));

  EXPECT_EQ(looked_at("sums")["usable"], true);
  EXPECT_NE(tenon({"inspect", "sums"}).out.find("decoder: "), std::string::npos);

  const language_test::Folder broken;
  json less = language_test::recorded()["cases"][0];
  less["shapes"].erase("model.norm.weight");
  less["shapes"]["model.layers.7.mlp.up_proj.weight"] = {176, 112};
  language_test::write_model(less, broken);
  const json bad = looked_at(broken.path().string(), 3);
  EXPECT_EQ(bad["usable"], false);
  EXPECT_EQ(bad["components"]["decoder"]["missing"], json({"model.norm.weight"}));
  EXPECT_EQ(bad["components"]["decoder"]["unexpected"], json({"model.layers.7.mlp.up_proj.weight"}));
  EXPECT_NE(bad["problem"].get<std::string>().find("model.norm.weight"), std::string::npos);
}

// Texts that take turns in a cache for one equal those with room for all; a text ends where the cache is full.
TEST_F(CliText, ACacheOfLimitedSize) {
  const json config = language_test::recorded()["cases"][0]["config"];
  const auto number = [&](const char* key) { return config[key].get<int64_t>(); };
  const int64_t head = number("hidden_size") / number("num_attention_heads");
  const int64_t page = 128 * 2 * number("num_hidden_layers") * number("num_key_value_heads") * head * 4;
  const auto limited = [&](int64_t pages, std::vector<std::string> more) {
    more.insert(more.begin(), {"complete", "--json", "-s", "5", "--max-tokens", "0"});
    if (pages) more.insert(more.end(), {"--cache-limit", std::to_string(pages * page) + "B"});
    return with(more);
  };
  const auto written = [&](int64_t pages, const std::vector<std::string>& more) {
    const Finished f = tenon(limited(pages, more));
    EXPECT_EQ(f.code, 0) << f.err;
    return f.out;
  };
  const std::vector<std::string> several{"-p", "one two", "-p", "three", "-p", "four", "--context", "120"};
  EXPECT_EQ(written(6, several), written(0, several));
  const Finished one = tenon(limited(6, {"one", "--stop", "no such text"}));
  const json j = json::parse(one.out);
  EXPECT_LE(j["usage"]["prompt_tokens"].get<int>() + j["usage"]["completion_tokens"].get<int>(), 128);
  EXPECT_NE(one.err.find("at most 6 pages of 128 tokens; at most 128 tokens per text"), std::string::npos) << one.err;
  expect_error(4, limited(5, {"one"}),
               {"cache limit", "text of 128 tokens", std::to_string(6 * page), "6 pages", "a prompt fills"});
  expect_error(4, limited(6, {"one", "--context", "129"}), {"cache limit", "text of 129 tokens", "7 pages"});
  for (const char* bad : {"much", "auto", "", "0", "-1GB"})
    expect_error(2, with({"complete", "one", "--cache-limit", bad}), {"--cache-limit"});
}

TEST_F(CliText, WhatCannotBeWritten) {
  expect_error(2, with({"complete"}), {"prompt", "missing"});
  expect_error(2, with({"complete", "a", "-p", "b"}), {"prompt", "more than one way"});
  expect_error(2, with({"complete", ""}), {"prompt", "no tokens"});
  expect_error(2, with({"complete", "a\xff"}), {"prompt", "not UTF-8", "byte 1"});
  expect_error(2, with({"complete", "a", "--context", "513"}), {"context", "513", "512 positions"});
  expect_error(2, with({"complete", "one two three four five six", "--context", "4"}), {"prompt", "context has 4"});
  expect_error(2, {"complete", "a", "--context", "1"}, {"1 token leaves no room for a text: the context has 1"});
  expect_error(2, {"complete", "one two three", "--context", "1", "--slide"}, {"[context] 1", "slides needs 2"});
  const Finished slid =
      tenon(with({"complete", "one two three four five six", "--context", "4", "--slide", "--max-tokens", "9", "-q"}));
  EXPECT_EQ(slid.code, 0) << slid.err;
  for (const auto& [flag, value] : {std::pair{"--temperature", "nan"},
                                    {"--temperature", "-1"},
                                    {"--temperature", "1e-7"},
                                    {"--temperature", "+1"},
                                    {"--temperature", " 1"},
                                    {"--temperature", "0x1"},
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
  expect_error(2, with({"complete", "a", "--temperature", "1e-9"}), {"--temperature", "1e-9", "0 (greedy)"});
  expect_error(2, with({"complete", "a", "--temperature", "1e30"}), {"1e30", "a number from 1e-6 to 1e6"});
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
    EXPECT_EQ(j["type"], "bf16");
    EXPECT_EQ(j["text"], "\n" + answer);
    EXPECT_EQ(j["finish_reason"], "stop");
  }
  EXPECT_EQ(tenon({"chat", "-q"}, {}, reading(question + "\n")).out, answer + "\n");
  const std::vector<std::string> two{"complete", "-q", "-p", question, "-p", "Tom has 9 pens. He loses 2. How many?"};
  std::vector<std::string> unfused = two;
  unfused.emplace_back("--no-fusion");
  EXPECT_EQ(tenon(unfused).out, tenon(two).out);
  EXPECT_EQ(tenon({"chat", "-q", "--no-fusion"}, {}, reading(question + "\n")).out, answer + "\n");
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

// Caches start as zeros there too.
TEST_F(CliText, EveryLaunchAgreesWithTheOracle) {
  for (const char* part : {"decode", "prefill", "token", "rollout"}) {
    const Finished f = tenon(with({"verify", "--no-parity", "--part", part, "--json"}));
    EXPECT_EQ(f.code, 0) << part << f.out << f.err;
  }
}

// Samples of inputs name a token of the prompt, however short it is.
TEST_F(CliText, PromptsOfEveryLengthAreTimed) {
  for (const char* context : {"3", "5", "40"}) {
    const Finished f = tenon(with({"bench", "--part", "prefill", "--context", context, "--batch-size", "2", "--runs",
                                   "1", "--no-anchors", "--no-unfused", "--json"}));
    EXPECT_EQ(f.code, 0) << context << f.err;
  }
}

TEST_F(CliText, AConversationLineByLine) {
  const auto command = with({"chat", "--max-tokens", "6", "--temperature", "0", "--json", "--system", "be brief"});
  const Finished f = tenon(command, {}, reading("hello\n\nhello\n  \t\r\n/reset\nhello"));
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

TEST_F(CliText, CommandsOfAConversation) {
  const auto command = with({"chat", "--max-tokens", "2", "--json"});
  const Finished path = tenon(command, {}, reading("/etc/hosts has how many?\n"));
  EXPECT_EQ(path.code, 0) << path.err;
  EXPECT_EQ(std::ranges::count(path.out, '\n'), 1) << "a path is no command";
  EXPECT_NE(path.err.find("seed " + json::parse(path.out)["seed"].dump()), std::string::npos) << path.err;
  const Finished other = tenon(command, {}, reading("/forget\nhello\n"));
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("[/forget] unknown command"), std::string::npos) << other.err;
  const auto refused = [&](const std::string& line, const std::string& why) {
    const Finished f = tenon(command, {}, reading(line + "\nhello\n"));
    EXPECT_EQ(f.code, 2) << line;
    EXPECT_EQ(f.out, "") << line;
    EXPECT_NE(f.err.find("[" + line + "] " + why), std::string::npos) << f.err;
  };
  refused("/EXIT", "unknown command");
  refused("/Reset", "unknown command");
  refused("/reset now", "/reset takes no words");
  refused("/EXIT please", "/exit takes no words");
  for (const char* end : {"/exit ", " /exit", "/exit\t", "\t/exit \r"}) {
    const Finished f = tenon(command, {}, reading(std::string(" /reset\n/reset\t \n") + end + "\nhello\n"));
    EXPECT_EQ(f.code, 0) << f.err;
    EXPECT_EQ(f.out, "") << "'" << end << "' or /reset went to the model";
  }
  const Finished asked = tenon(command, {}, reading("/usr/bin/x is what?\n/\n/tmp/x\n/word of a sentence\n/a1\n"));
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_EQ(std::ranges::count(asked.out, '\n'), 5) << "paths and sentences are questions";
}

TEST_F(CliText, AnInterruptedAnswerSaysSo) {
  const std::filesystem::path endless = folder() / "endless";
  std::filesystem::copy(small(), endless);
  std::ofstream(endless / "generation_config.json") << R"({"eos_token_id": []})";
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(write(ends[1], "hello\n", 6), 6);
  Process process({"chat", "-m", "endless", "--temperature", "1", "--json", "--max-tokens", "1000000", "--slide"},
                  folder(), {}, [&] { dup2(ends[0], STDIN_FILENO); });
  ASSERT_TRUE(process.wait_for_log("seed ", 60));
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  process.signal(SIGINT);
  close(ends[1]);
  close(ends[0]);
  const json turn = json::parse(process.finish().out);
  EXPECT_EQ(turn["finish_reason"], "cancelled");
  EXPECT_GT(turn["usage"]["completion_tokens"], 0);
  EXPECT_FALSE(turn["usage"].contains("cached_tokens"));
}

// At a terminal a refused question can be rephrased; a script sees the exit code.
TEST_F(CliText, AQuestionThatFindsNoRoom) {
  const std::string questions = "hello\n" + std::string(600, 'x') + "\nhello\n";
  const auto command = with({"chat", "--max-tokens", "6", "--temperature", "0", "--json", "-q"});
  const Finished piped = tenon(command, {}, reading(questions));
  EXPECT_EQ(piped.code, 2);
  EXPECT_EQ(std::ranges::count(piped.out, '\n'), 1);
  const Finished f = at_terminal(command, questions);
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_NE(f.err.find("leave no room"), std::string::npos) << f.err;
  ASSERT_EQ(std::ranges::count(f.out, '\n'), 2) << f.out;
  const auto first = json::parse(f.out.substr(0, f.out.find('\n')))["usage"];
  const auto last = json::parse(f.out.substr(f.out.find('\n') + 1))["usage"];
  EXPECT_LT(last["prompt_tokens"], 3 * first["prompt_tokens"].get<int>() + 30) << "the refused question is forgotten";
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
