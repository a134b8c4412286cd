// Reward scripts: what they start, how they are imported, what two of one name are.
#include "tenon/train/reward_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "tenon/core/error.h"
#include "tenon/train/rewards.h"
#include "tests/io/io_test_tools.h"

namespace tenon::train {
namespace {
using io_test::put;
using testing::ElementsAre;

bool runs(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string number, name, state;
  return (file >> number >> name >> state) && state != "Z";  // nobody may have asked how it ended
}

std::vector<double> rewards(RewardScript& script) {
  const std::vector<Judged> rows{{.text = "bc", .gold = "", .prompt = "a"}};
  return script(rows);
}

TEST(RewardScript, WhatItStartsEndsWithIt) {
  const io_test::TempFolder folder;
  put(folder / "judge.py",
      "import subprocess\n"
      "child = subprocess.Popen(['sleep', '100'])\n"
      "def reward(prompts, completions, **columns): return [child.pid]\n");
  int child = 0;
  {
    RewardScript script(folder / "judge.py", 60);
    child = static_cast<int>(rewards(script).at(0));
    EXPECT_TRUE(runs(child));
  }
  for (int i = 0; i < 200 && runs(child); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(runs(child));
}

// Other processes import what they are sent by the script's name.
TEST(RewardScript, ItsFunctionsRunInOtherProcesses) {
  const io_test::TempFolder folder;
  const std::string text =
      "import multiprocessing\n"
      "def score(text): return len(text)\n"
      "def reward(prompts, completions, **columns):\n"
      "    if __name__ == 'tenon_reward': return [7]\n"
      "    with multiprocessing.get_context('spawn').Pool(1) as pool: return pool.map(score, completions)\n";
  for (const auto& [name, reward] : {std::pair("judge.py", 2), std::pair("json.py", 7), std::pair("my-judge.py", 7)}) {
    put(folder / name, text);
    RewardScript script(folder / name, 60);
    EXPECT_THAT(rewards(script), ElementsAre(reward)) << name;
  }
}

TEST(RewardScript, TwoOfOneName) {
  const io_test::TempFolder folder;
  const std::string one = folder / "a/judge.py", other = folder / "b/judge.py";
  for (const std::string& name : {one, other}) put(name, "def reward(prompts, completions, **columns): return [0]\n");
  const auto refused = [](const std::vector<std::string>& names, const std::string& why) {
    io_test::expect_error(ErrorKind::Usage, why, [&] { parse_rewards(names, {}, 60); });
  };
  refused({one, other}, one + " and " + other + " would both be called 'judge' in metrics; rename one of them");
  refused({one, one}, "judge is given twice");
  refused({one, folder / "a/../a/judge.py"}, "judge is given twice");
  refused({"exact", "exact"}, "exact is given twice");
}

}  // namespace
}  // namespace tenon::train
