// Training through the command line: its results, its errors, and what remains of a run that is killed.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <numeric>

#include "tests/cli/cli.h"
#include "tests/language/language_fixtures.h"

namespace cli {
namespace {
using nlohmann::json;
namespace fs = std::filesystem;

class CliTrain : public CliTest {
 protected:
  // A model with random weights that often ends its texts.
  static const fs::path& small() {
    static const language_test::Folder all;
    static const bool written = [] {
      language_test::write_model(language_test::recorded()["cases"][0], all);
      all.write("generation_config.json", R"({"eos_token_id": [3, 4, 5, 6, 7, 8, 9, 10], "temperature": 0.7})");
      return true;
    }();
    static_cast<void>(written);
    return all.path();
  }
  static std::vector<std::string> arguments(const std::string& output, std::vector<std::string> more = {}) {
    const auto given = [&](const char* flag) { return std::ranges::find(more, flag) != more.end(); };
    std::vector<std::string> out{"train", "grpo", "-m", small().string(), "-o", output, "--lr", "1e-3"};
    out.insert(out.end(), {"--threads", "1", "--device", "cpu", "--group", "4"});
    if (!given("--max-tokens")) out.insert(out.end(), {"--max-tokens", "8"});
    if (!given("--data")) out.insert(out.end(), {"--dataset", "sums"});
    if (!given("--reward")) out.insert(out.end(), {"--reward", "length"});
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  static std::string bytes(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::vector<json> metrics(const fs::path& run) {
    std::vector<json> out;
    std::ifstream file(run / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      out.push_back(json::parse(line));
      for (const char* key : {"rollout_seconds", "reward_seconds", "update_seconds", "evaluation_seconds"})
        out.back().erase(key);
    }
    return out;
  }
};

// Killed twenty times at random moments and resumed: bit-identical to an undisturbed run.
TEST_F(CliTrain, KilledAnywhereGoesOnToTheBit) {
  const std::vector<std::string> recipe{
      "--steps", "30", "--checkpoint-every", "1", "--eval-every", "7", "--eval-count", "3", "--beta", "0.02", "-q"};
  const Finished alone = tenon(arguments("alone", recipe));
  ASSERT_EQ(alone.code, 0) << alone.err;
  std::vector<int64_t> lines(20);
  std::iota(lines.begin(), lines.end(), 0);
  EXPECT_GE(killed(arguments("killed", recipe), folder() / "killed/metrics.jsonl", lines, alone.seconds / 20), 10);
  const Finished last = tenon(arguments("killed", recipe));
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_TRUE(bytes(folder() / "killed/model.safetensors") == bytes(folder() / "alone/model.safetensors"));
  EXPECT_FALSE(bytes(folder() / "alone/model.safetensors").empty());
  EXPECT_EQ(metrics(folder() / "killed"), metrics(folder() / "alone"));
  for (const auto& entry : fs::directory_iterator(folder() / "killed"))
    EXPECT_EQ(entry.path().filename().string().find("unfinished"), std::string::npos) << entry.path();
}

// Without arguments the embedded model learns sums; a third of that run already shows progress.
TEST_F(CliTrain, TheEmbeddedModelLearns) {
  const Finished f = tenon({"train", "grpo", "--steps", "12", "--eval-every", "12", "--eval-count", "100", "-q"});
  ASSERT_EQ(f.code, 0) << f.err;
  const std::vector<json> all = metrics(folder() / "grpo");
  const double before = all.front().at("exact_match"), after = all.back().at("exact_match");
  EXPECT_GT(before, 0.4);
  EXPECT_LT(before, 0.8);
  EXPECT_GT(after, before + 0.1);
}

TEST_F(CliTrain, AllOfAnEvaluationFileCountsUnlessFewerAreAskedFor) {
  std::ofstream file(folder() / "held.jsonl");
  for (int i = 0; i < 70; ++i) file << R"({"prompt": "1 + )" << i << R"(", "answer": ")" << 1 + i << "\"}\n";
  file.close();
  const auto evaluated = [&](const std::string& output, const std::vector<std::string>& more) {
    std::vector<std::string> words{"train",      "grpo",         "--data", "held.jsonl", "--eval-data",
                                   "held.jsonl", "--steps",      "1",      "-q",         "-o",
                                   output,       "--max-tokens", "1",      "--prompts",  "1"};
    words.insert(words.end(), more.begin(), more.end());
    const Finished f = tenon(words);
    EXPECT_EQ(f.code, 0) << f.err;
    return metrics(folder() / output).front().at("count").get<int>();
  };
  EXPECT_EQ(evaluated("all", {}), 70);
  EXPECT_EQ(evaluated("few", {"--eval-count", "5"}), 5);
  EXPECT_EQ(evaluated("more", {"--eval-count", "500"}), 70);
}

// Values that do not fit are recomputed, bit for bit: a run may continue in less memory.
TEST_F(CliTrain, LessMemoryIsTheSameRun) {
  const auto run = [&](const char* output, const char* steps, const char* memory) {
    const Finished f = tenon({"train", "grpo", "--device", "cpu", "--eval-every", "0", "--lr-scheduler", "constant",
                              "-q", "-o", output, "--steps", steps, "--max-memory", memory});
    ASSERT_EQ(f.code, 0) << f.err;
  };
  run("alone", "2", "0");
  run("run", "1", "0");
  run("run", "2", "14");
  EXPECT_TRUE(bytes(folder() / "run/model.safetensors") == bytes(folder() / "alone/model.safetensors"));
}

// A limit that not even the shortest completions keep to.
TEST_F(CliTrain, TooLittleMemoryIsRefusedBeforeAFolderIsMade) {
  const Finished f =
      tenon({"train", "grpo", "--device", "cpu", "-q", "-o", "run", "--steps", "1", "--max-memory", "1"});
  EXPECT_EQ(f.code, 4) << f.err;
  EXPECT_NE(f.err.find("MiB or more"), std::string::npos) << f.err;
  EXPECT_FALSE(fs::exists(folder() / "run"));
}

TEST_F(CliTrain, ASignalLeavesACheckpointOfThatStep) {
  const std::vector<std::string> recipe{"--steps", "4000", "--checkpoint-every", "0", "--eval-every", "0"};
  const auto interrupt = [&](const std::string& run, const std::vector<int>& signals, int code) {
    Process process(arguments(run, recipe), folder());
    ASSERT_TRUE(process.wait_for_log("step 2/", 60));
    for (const int each : signals) process.signal(each);
    const Finished f = process.finish();
    EXPECT_EQ(f.code, code) << f.err;
    EXPECT_NE(f.err.find("interrupted after step "), std::string::npos) << f.err;
    const std::string step = std::to_string(metrics(folder() / run).back().at("step").get<int>());
    EXPECT_TRUE(fs::exists(folder() / run / ("checkpoint-" + step) / "optimizer.safetensors"));
  };
  interrupt("terminated", {SIGTERM}, 143);
  interrupt("closed", {SIGHUP, SIGHUP}, 129);  // by the shell and by the terminal
}

// A full disk: the error names the checkpoint, existing ones stay, and the run resumes from them.
TEST_F(CliTrain, AFullDiskLosesNothing) {
  const std::vector<std::string> more{"--checkpoint-every", "1", "--eval-every", "0", "-q", "--steps"};
  const auto steps = [&](const std::string& run, const std::string& count) {
    std::vector<std::string> all = more;
    all.push_back(count);
    return arguments(run, all);
  };
  ASSERT_EQ(tenon(steps("run", "3")).code, 0);
  const Finished full = tenon(steps("run", "6"), {}, [] {
    const rlimit limit{100'000, 100'000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) std::abort();
  });
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.err.find("run/"), std::string::npos) << full.err;
  EXPECT_TRUE(fs::exists(folder() / "run/checkpoint-3/trainer.json"));
  EXPECT_FALSE(fs::exists(folder() / "run/checkpoint-4"));
  EXPECT_FALSE(fs::exists(folder() / "run/.unfinished-4"));  // it would keep the disk full
  EXPECT_EQ(tenon(steps("run", "6")).code, 0);
  EXPECT_EQ(tenon(steps("alone", "6")).code, 0);
  EXPECT_TRUE(bytes(folder() / "run/model.safetensors") == bytes(folder() / "alone/model.safetensors"));
}

// No loss follows the last update, which would reveal it.
TEST_F(CliTrain, WeightsThatAreNoNumbersAreNotWritten) {
  const Finished f =
      tenon(arguments("run", {"--steps", "1", "--epochs", "1", "--weight-decay", "1e99", "--eval-every", "0", "-q"}));
  EXPECT_EQ(f.code, 5) << f.err;
  EXPECT_NE(f.err.find("are not written"), std::string::npos) << f.err;
  EXPECT_TRUE(fs::exists(folder() / "run/checkpoint-0/trainer.json"));
  for (const char* name : {"checkpoint-1", ".unfinished-1", "model.safetensors", "config.json"})
    EXPECT_FALSE(fs::exists(folder() / "run" / name)) << name;
}

// A folder that holds a model, perhaps the very one that is trained, is no place for a run.
TEST_F(CliTrain, AModelInTheRunsFolderStays) {
  fs::copy(small(), folder() / "model", fs::copy_options::recursive);
  const std::string before = bytes(folder() / "model/model.safetensors");
  expect_error(2, arguments("model", {"--steps", "1"}),
               {"[model/model.safetensors] is there already", "another folder"});
  EXPECT_EQ(bytes(folder() / "model/model.safetensors"), before);
}

TEST_F(CliTrain, OneRunAFolder) {
  Process first(arguments("run", {"--steps", "4000", "--eval-every", "0"}), folder());
  ASSERT_TRUE(first.wait_for_log("step 1/", 60));
  const Finished second = tenon(arguments("run", {"--steps", "4000", "--eval-every", "0"}));
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.err.find("another run is writing into this folder"), std::string::npos) << second.err;
  first.signal(SIGKILL);
  first.finish();
}

// Fewer steps than already done: nothing is left to do, and the folder is unchanged.
TEST_F(CliTrain, AFinishedRunIsWhole) {
  const std::vector<std::string> three{"--eval-every", "0", "-q", "--steps", "3"};
  std::vector<std::string> two = three;
  two.back() = "2";
  ASSERT_EQ(tenon(arguments("run", three)).code, 0);
  const std::string before = bytes(folder() / "run/model.safetensors");
  const Finished f = tenon(arguments("run", two));
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(f.out + f.err, "run\n");
  EXPECT_TRUE(bytes(folder() / "run/model.safetensors") == before);
}

// An adapter for one model's weights is useless for another's, whatever the folders are called.
TEST_F(CliTrain, AnotherModelIsAnotherRun) {
  const std::vector<std::string> recipe{"--eval-every", "0", "--lora", "2", "--steps", "1"};
  std::vector<std::string> longer = recipe;
  longer.back() = "2";
  fs::copy(small(), folder() / "first");
  const auto with_model = [&](const char* model, const std::vector<std::string>& more) {
    std::vector<std::string> all = arguments("run", more);
    all.at(3) = model;
    return all;
  };
  ASSERT_EQ(tenon(with_model("first", recipe)).code, 0);
  fs::copy(folder() / "first", folder() / "second");
  std::string weights = bytes(folder() / "second/model.safetensors");
  weights.back() ^= 1;
  std::ofstream(folder() / "second/model.safetensors", std::ios::binary) << weights;
  expect_error(2, with_model("second", longer), {"run/checkpoint-1", "other options"});
  fs::rename(folder() / "first", folder() / "moved");
  EXPECT_EQ(tenon(with_model("moved", longer)).code, 0);
}

// The record in trainer.json is validated like any file.
TEST_F(CliTrain, ATrainerFileThatLies) {
  const std::vector<std::string> recipe{"--eval-every", "0", "--steps", "1"};
  ASSERT_EQ(tenon(arguments("run", recipe)).code, 0);
  const fs::path file = folder() / "run/checkpoint-1/trainer.json";
  const json good = json::parse(bytes(file));
  std::vector<std::string> longer = recipe;
  longer.back() = "2";
  for (const char* key : {"updates", "problems", "best", "best_step"})
    for (const json& value : {json("x"), json(1e300), json(-7), json(uint64_t{1} << 62), json()}) {
      json bad = good;
      bad["run"][key] = value;
      std::ofstream(file) << bad;
      expect_error(3, arguments("run", longer), {"run/checkpoint-1", std::string("'") + key + "' is"});
    }
}

TEST_F(CliTrain, ErrorsNameTheThing) {
  std::ofstream(folder() / "empty.jsonl") << "\n";
  std::ofstream(folder() / "keys.jsonl") << "{\"prompt\":\"a\",\"answer\":\"1\"}\n{\"prompt\":\"b\"}\n";
  std::ofstream(folder() / "quotes.jsonl") << "{\"prompt\":\"a\",\"answer\":\"1}\n";
  std::ofstream(folder() / "good.jsonl") << "{\"question\":\"a\",\"answer\":\"#### 1\"}\n";
  expect_error(2, arguments("run", {"--data", "empty.jsonl"}), {"empty.jsonl", "no problems"});
  expect_error(2, arguments("run", {"--data", "keys.jsonl"}), {"keys.jsonl:2", "no 'answer'"});
  expect_error(2, arguments("run", {"--data", "quotes.jsonl"}), {"quotes.jsonl:1"});
  // All rows are checked before the first step.
  const std::string words(3000, 'x');
  std::ofstream(folder() / "long.jsonl") << "{\"prompt\":\"a\",\"answer\":\"1\"}\n\n{\"prompt\":\"" << words
                                         << "\",\"answer\":\"1\"}\n{\"prompt\":\"" << words << "\",\"answer\":\"1\"}\n";
  for (const char* flag : {"--data", "--eval-data"}) {
    std::vector<std::string> more{flag, "long.jsonl"};
    if (flag == std::string("--eval-data")) more.insert(more.end(), {"--data", "good.jsonl"});
    expect_error(2, arguments("run", more), {"long.jsonl:3", "exceeds the model's", "2 of 3 rows"});
  }
  EXPECT_FALSE(fs::exists(folder() / "run"));
  expect_error(2, arguments("run", {"--data", "none.jsonl"}), {"none.jsonl"});
  expect_error(2, arguments("run", {"--data", "good.jsonl", "--dataset", "sums"}), {"given twice"});
  expect_error(2, arguments("run", {"--eval-data", "good.jsonl"}), {"[--eval-data]", "--dataset", "--data"});
  expect_error(2, arguments("run", {"--max-tokens", "100000"}), {"with 100000 for the answer", "exceeds the model's"});
  expect_error(2, arguments("run", {"--micro-rows", "3"}), {"micro rows", "divisor"});
  expect_error(2, {"train", "grpo", "-o", "run", "--group", "1"}, {"group", "teaches nothing", "2 or more"});
  expect_error(2, arguments("run", {"--reward", "exakt"}), {"exakt", "exact"});
  expect_error(2, arguments("run", {"--reward", "exact", "format"}), {"format"});
  expect_error(2, arguments("run", {"--loss", "ppo"}), {"ppo"});
  expect_error(2, arguments("run", {"--ema", "1"}), {"ema"});
  expect_error(2, arguments("run", {"--lora-alpha", "8"}), {"--lora-alpha", "needs --lora"});
  expect_error(2, arguments("run", {"--lora", "2", "--lora-targets", "lm_head"}), {"lm_head", "q_proj"});
  expect_error(2, arguments("run", {"--lora", "2", "--lora-alpha", "0"}), {"alpha / rank is 0", "that is not 0"});
  expect_error(2, arguments("run", {"--lora", "2", "--lora-alpha", "-1e30"}),
               {"lora alpha", "expected -1e+09 to 1e+09"});
  expect_error(3, {"complete", "a", "-m", small().string(), "--lora", small().string()}, {"adapter_config.json"});
  expect_error(2, arguments("run", {"--clip-low", "1.5"}), {"clip low"});
  expect_error(2, arguments("run", {"--clip-high", "-1"}), {"clip high"});
  expect_error(2, arguments("run", {"--weight-decay", "-1"}), {"weight_decay"});
  expect_error(2, arguments("run", {"--max-grad-norm", "nan"}), {"--max-grad-norm: expected a finite", "nan"});
  expect_error(2, arguments("run", {"-s", "-1"}), {"--seed", "at least 0"});
  expect_error(2, arguments("run", {"--prompts", "1099511627776"}), {"group", "1099511627776 completions"});
  expect_error(4, arguments("run", {"--prompts", "500000"}), {"500000 prompts", "MiB", "prompts fit"});
  expect_error(2, {"train", "sft", "-m", "x", "-o", "run"}, {"sft"});
  expect_error(2, {"train", "grpo", "-m", small().string(), "-o", "run"}, {"--dataset sums"});
  expect_error(3, {"train", "grpo", "-m", "nowhere", "-o", "run", "--dataset", "sums"}, {"nowhere"});
  expect_error(3, {"train", "grpo", "-m", "random:smollm2-135m", "-o", "run", "--dataset", "sums"}, {"no tokenizer"});
}

// Ways in which a Python reward can fail: one error that names the script, and existing checkpoints stay.
TEST_F(CliTrain, RewardsInPythonThatFail) {
  const auto script = [&](const std::string& body) {
    std::ofstream(folder() / "judge.py") << "def reward(prompts, completions, **columns):\n    " << body << "\n";
  };
  const auto fails = [&](int code, const std::string& body, const std::string& part) {
    script(body);
    const Finished f = tenon(arguments(
        "run", {"--reward", "judge.py", "--reward-timeout", "0.5", "--steps", "2", "--eval-every", "0", "-q"}));
    EXPECT_EQ(f.code, code) << f.err;
    EXPECT_NE(f.err.find("error: [step 1] [judge.py] " + part), std::string::npos) << f.err;
    EXPECT_EQ(std::ranges::count(f.err, '\n'), 1) << f.err;
    EXPECT_TRUE(fs::exists(folder() / "run/checkpoint-0/trainer.json"));
    fs::remove_all(folder() / "run");
  };
  fails(1, "return [1][2]", "line 2: IndexError: list index out of range");
  fails(1, "while True: pass", "took longer than 0.5 seconds");
  fails(1, "return [1, 2]", "gave 2 rewards for 8 completions");
  fails(5, "return [float('nan')] * len(prompts)", "the reward of completion 0 is nan");
  fails(5, "return [10 ** 400] * len(prompts)", "the reward of completion 0 is too large for a float");
  fails(1, "raise ValueError('\\ud800 lone')", "line 2: ValueError: ? lone");
  fails(1, "import os; os._exit(3)", "its process ended");
  // What has elements but is no list of numbers.
  fails(1, "return '1' * len(prompts)", "TypeError: reward returned an object of type str, expected a list of numbers");
  fails(1, "return dict.fromkeys(range(len(prompts)), 1)",
        "TypeError: reward returned an object of type dict, expected");
  fails(1, "return None", "TypeError: reward returned an object of type NoneType, expected a list of numbers");
  fails(1, "return ['0.5'] * len(prompts)", "TypeError: reward returned an object of type str in its list, expected");
  // Writes into the channel itself, which no script should touch.
  for (const auto& [line, part] :
       {std::pair{"[]", "answered []"},
        {R"({"error": 5})", R"(answered {"error":5})"},
        {R"({"values": 5})", R"(answered {"values":5})"},
        {R"({"values": [{}, 1, 1, 1, 1, 1, 1, 1]})", "the reward of completion 0 is not a number"}})
    fails(1, std::string("import os, time; os.write(4, b'") + line + "\\n'); time.sleep(9)", part);
  // Finite, but not in f32.
  script("return [1e30 * len(c) for c in completions]");
  const Finished large = tenon(arguments("run", {"--reward", "judge.py", "--steps", "1", "--eval-every", "0", "-q"}));
  EXPECT_EQ(large.code, 5) << large.err;
  EXPECT_NE(large.err.find("[step 1] [reward] the weighted reward of completion 0 is "), std::string::npos)
      << large.err;
  fs::remove_all(folder() / "run");
  std::ofstream(folder() / "broken.py") << "def reward(:\n";
  std::ofstream(folder() / "none.py") << "def score(): pass\n";
  std::ofstream(folder() / "import.py") << "x = 1\nraise OSError\n";
  expect_error(2, arguments("run", {"--reward", "import.py"}), {"[import.py] line 2: OSError\n"});
  expect_error(2, arguments("run", {"--reward", "broken.py"}), {"broken.py", "SyntaxError"});
  expect_error(2, arguments("run", {"--reward", "none.py"}), {"none.py", "no function reward"});
  expect_error(2, arguments("run", {"--reward", "nowhere.py"}), {"nowhere.py"});
  for (const char* seconds : {"0", "-1"})
    for (const char* reward : {"none.py", "exact"})
      expect_error(2, arguments("run", {"--reward", reward, "--reward-timeout", seconds}),
                   {"reward timeout", seconds, "expected a finite number above 0"});
  expect_error(2, arguments("run", {"--reward", "exact", "--reward-weights", "1,2"}), {"reward weights", "got 2"});
}

// The script computes the same rewards as the built-in one, so the run's weights are bit-identical.
TEST_F(CliTrain, ARewardInPython) {
  const int held = open("/dev/zero", O_RDONLY);  // inherited by the program, but not by the script
  std::ofstream(folder() / "short.py")
      << "import os, sys\n"
         "held = [f'/proc/self/fd/{n}' for n in os.listdir('/proc/self/fd')]\n"
         "assert '/dev/zero' not in [os.readlink(f) for f in held if os.path.exists(f)]\n"
         "print('imported')\n"
         "def reward(completions, level, prompts, answer, **columns):\n"
         "    assert sys.stdin.read() == ''\n"
         "    assert len(prompts) == len(completions) == len(answer) == 8\n"
         "    assert set(zip(prompts, answer, level)) <= {('a', '1', 3), ('b', '2', None)}\n"
         "    return [len(c) / 64 if p == 'a' else None for p, c in zip(prompts, completions)]\n";
  std::ofstream(folder() / "data.jsonl")
      << "{\"prompt\":\"a\",\"answer\":\"1\",\"level\":3}\n{\"prompt\":\"b\",\"answer\":\"2\"}\n";
  const std::vector<std::string> recipe{"--data", "data.jsonl", "--steps", "3", "-q", "--reward", "short.py"};
  const Finished f = tenon(arguments("run", recipe));
  close(held);
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(f.err, "imported\n");
  double sum = 0;
  for (const json& m : metrics(folder() / "run")) sum += m.at("reward").get<double>();
  EXPECT_GT(sum, 0);
  // Another script makes it another run.
  std::ofstream(folder() / "short.py") << "def reward(prompts, completions, **columns): return [0] * len(prompts)\n";
  std::vector<std::string> more = recipe;
  more.at(3) = "4";
  expect_error(2, arguments("run", more), {"run/checkpoint-3", "other options"});
}

// A child that the script forks ends where it would answer; its rewards are not the script's.
TEST_F(CliTrain, AForkedChildDoesNotAnswer) {
  std::ofstream(folder() / "judge.py") << "import os\n"
                                          "def reward(prompts, completions, **columns):\n"
                                          "    child = os.fork()\n"
                                          "    if child: os.waitpid(child, 0)\n"
                                          "    return [1 if child else 7] * len(prompts)\n";
  const Finished f = tenon(arguments("run", {"--reward", "judge.py", "--steps", "2", "--eval-every", "0", "-q"}));
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(f.err, "");
  for (const json& m : metrics(folder() / "run")) EXPECT_EQ(m.at("reward"), 1) << m;
}

// The limit is for calls; an import may take longer. Lists that a script gets from the run are not replaced by data's.
TEST_F(CliTrain, WhatARewardScriptGets) {
  std::ofstream(folder() / "slow.py") << "import time\ntime.sleep(0.7)\n"
                                         "def reward(prompts, completions, **columns): return [1] * len(prompts)\n";
  const std::vector<std::string> scored{"--reward", "slow.py", "--reward-timeout", "0.5", "--steps", "1", "-q"};
  const Finished f = tenon(arguments("run", scored));
  EXPECT_EQ(f.code, 0) << f.err;
  // A column that no row of a step has.
  std::ofstream(folder() / "level.py") << "def reward(prompts, completions, level, **columns):\n"
                                          "    assert set(zip(prompts, level)) <= {('a', 3), ('b', None)}\n"
                                          "    return [1] * len(prompts)\n";
  std::ofstream(folder() / "rows.jsonl") << "{\"prompt\":\"a\",\"answer\":\"1\",\"level\":3}\n"
                                            "{\"prompt\":\"b\",\"answer\":\"2\"}\n";
  const Finished all =
      tenon(arguments("all", {"--data", "rows.jsonl", "--reward", "level.py", "--steps", "2", "--prompts", "1", "-q"}));
  EXPECT_EQ(all.code, 0) << all.err;
  for (const std::string key : {"prompts", "completions"}) {
    std::ofstream(folder() / "data.jsonl")
        << "{\"prompt\":\"a\",\"answer\":\"1\"}\n{\"prompt\":\"b\",\"answer\":\"2\",\"" << key << "\":3}\n";
    std::vector<std::string> call = scored;
    call.insert(call.end(), {"--data", "data.jsonl"});
    expect_error(2, arguments("other", call), {"[data.jsonl:2] has the key '" + key + "'", "rename it"});
  }
}

// An adapter through the command line: a folder that `complete` accepts with the model.
TEST_F(CliTrain, AnAdapter) {
  const Finished f =
      tenon(arguments("run", {"--lora", "3", "--lora-alpha", "12", "--lora-targets", "q_proj,down_proj", "--steps", "2",
                              "--ema", "0.9", "--eval-every", "0", "--type", "bf16", "-q"}));
  ASSERT_EQ(f.code, 0) << f.err;
  const json config = json::parse(bytes(folder() / "run/adapter_config.json"));
  EXPECT_EQ(config["r"], 3);
  EXPECT_EQ(config["lora_alpha"], 12);
  EXPECT_EQ(config["target_modules"], json::parse(R"(["q_proj", "down_proj"])"));
  EXPECT_TRUE(fs::exists(folder() / "run/checkpoint-2/adapter_model.safetensors"));
  EXPECT_TRUE(fs::exists(folder() / "run/checkpoint-2/ema.safetensors"));
  expect_error(2, arguments("run", {"--steps", "3"}),
               {"run/checkpoint-2", "other options", "(adapter.rank: 3 there, 0 here)"});
  expect_error(3, {"complete", "a", "-m", "run"}, {"[run] is not a language model", "it is an adapter", "--lora"});
  EXPECT_EQ(tenon({"complete", "a", "-m", small().string(), "--lora", "run", "--max-tokens", "3", "-q"}).code, 0);
}

// What no completion can satisfy is refused if nothing else is rewarded; otherwise it is said.
TEST_F(CliTrain, AnswersWithoutANumber) {
  const auto put = [&](const std::string& name, const std::string& first) {
    std::ofstream(folder() / name) << R"({"prompt":"a","answer":")" + first + "\"}\n" +
                                          R"({"prompt":"b","answer":"x"})" + "\n";
  };
  put("none.jsonl", "seven");
  put("one.jsonl", "$7");
  const auto recipe = [](const char* data, const char* held, const char* steps) {
    return arguments("run", {"--data", data, "--eval-data", held, "--reward", "exact", "--steps", steps});
  };
  expect_error(2, recipe("none.jsonl", "one.jsonl", "1"), {"none.jsonl", "no answer is a number"});
  const Finished f = tenon(recipe("one.jsonl", "none.jsonl", "1"));
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_NE(f.err.find("one.jsonl: 1 of 2 answers"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("none.jsonl: 2 of 2 answers"), std::string::npos) << f.err;
  // Scores of other data are not compared with those.
  ASSERT_EQ(tenon(recipe("one.jsonl", "one.jsonl", "2")).code, 0);
  EXPECT_EQ(json::parse(bytes(folder() / "run/checkpoint-2/trainer.json"))["run"]["best_step"], 2);
}

// Data, a reward of several parts, JSON; the resulting folder is a model.
TEST_F(CliTrain, ARunOverAFile) {
  std::ofstream(folder() / "data.jsonl")
      << "{\"question\":\"a\",\"answer\":\"#### 1\"}\n{\"prompt\":\"b\",\"answer\":\"2\"}\n";
  const Finished f = tenon(
      arguments("run", {"--data",           "data.jsonl", "--eval-data",     "data.jsonl", "--steps",     "3",
                        "--reward",         "exact",      "--reward",        "format",     "--reward",    "length",
                        "--reward-weights", "1,0.5,0.1",  "--tensorboard",   "--profile",  "--json",      "-q",
                        "--loss",           "grpo",       "--scale-rewards", "group",      "--optimizer", "lion",
                        "--type",           "bf16"}));
  ASSERT_EQ(f.code, 0) << f.err;
  for (const char* phase : {"rollout ", "gradients ", "update ", "checkpoints ", "all "})
    EXPECT_NE(f.err.find(phase), std::string::npos) << f.err;
  std::istringstream lines(f.out);
  std::vector<json> out;
  for (std::string line; std::getline(lines, line);) out.push_back(json::parse(line));
  ASSERT_EQ(out.size(), 5U);  // evaluations before and after
  EXPECT_EQ(out[0]["count"], 2);
  for (const char* key : {"loss", "reward", "kl", "grad_norm", "ratio_error", "truncated", "lr", "reward.format"})
    EXPECT_TRUE(out[1].contains(key)) << key;
  EXPECT_EQ(std::ranges::count_if(
                fs::directory_iterator(folder() / "run"),
                [](const auto& entry) { return entry.path().filename().string().starts_with("events.out.tfevents."); }),
            1);
  const Finished text =
      tenon({"complete", "a", "-m", "run", "--max-tokens", "3", "--temperature", "0", "--device", "cpu"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(json::parse(bytes(folder() / "run/config.json"))["torch_dtype"], "float32");
}

}  // namespace
}  // namespace cli
