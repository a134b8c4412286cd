// Flags of both methods of training: their spellings, and what is said of their values.
#include <algorithm>
#include <sstream>

#include "tests/cli/cli.h"

namespace cli {
namespace {

class CliTrainFlags : public CliTest {
 protected:
  // One step of the embedded language model.
  static std::vector<std::string> step(const std::vector<std::string>& more) {
    std::vector<std::string> out{"train", "grpo", "--device", "cpu", "--eval-every", "0", "--prompts", "1"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
};

TEST_F(CliTrainFlags, EveryFlagTakesEitherDash) {
  for (const char* method : {"grpo", "lora"}) {
    std::istringstream help(tenon({"train", method, "--help"}).out);
    int flags = 0;
    for (std::string line; std::getline(help, line);) {
      const size_t begin = line.find_first_not_of(' ');
      if (begin == std::string::npos || line[begin] != '-' || begin > 4) continue;
      const std::string names = line.substr(begin, line.find(' ', begin) - begin);
      std::istringstream each(names);
      for (std::string name; std::getline(each, name, ',');) {
        if (!name.starts_with("--") || name.find('-', 2) == std::string::npos) continue;
        std::replace(name.begin() + 2, name.end(), '-', '_');
        EXPECT_NE(("," + names + ",").find("," + name + ","), std::string::npos) << method << ": " << names;
        ++flags;
      }
    }
    EXPECT_GT(flags, 15) << method;
  }
}

// Both methods accept diffusers' and transformers' names.
TEST_F(CliTrainFlags, WarmUpHasOneNameInBothMethods) {
  for (const char* method : {"grpo", "lora"})
    for (const char* flag : {"--lr-warmup-steps", "--lr_warmup_steps", "--warmup-steps", "--warmup_steps"})
      expect_error(2, {"train", method, flag, "-1"}, {"--lr-warmup-steps", "-1"});
}

// The embedded model's template renders the last message alone.
TEST_F(CliTrainFlags, ASystemMessageWithoutEffectIsSaid) {
  const auto log = [&](const std::string& output, const std::vector<std::string>& more) {
    std::vector<std::string> all{"--steps", "1", "-o", output};
    all.insert(all.end(), more.begin(), more.end());
    const Finished f = tenon(step(all));
    EXPECT_EQ(f.code, 0) << f.err;
    return f.err;
  };
  const std::string said = "--system has no effect";
  EXPECT_NE(log("with", {"--system", "Answer briefly."}).find(said), std::string::npos);
  EXPECT_EQ(log("without", {}).find(said), std::string::npos);
}

// The embedded model's rate falls linearly, to 0 at the last step.
TEST_F(CliTrainFlags, StepsOfARateThatDecaysStayTheSame) {
  ASSERT_EQ(tenon(step({"--steps", "1", "-o", "run", "-q"})).code, 0);
  expect_error(2, step({"--steps", "2", "-o", "run", "-q"}),
               {"(steps: 1 there, 2 here; the rate is linear, so that it depends on the steps)"});
}

// In the caller's spelling, and with what that method trains in.
TEST_F(CliTrainFlags, TypesThatAreNotTrainedIn) {
  for (const char* type : {"int8", "e4m3", "fp16", "bf61"})
    expect_error(2, {"train", "grpo", "--type", type},
                 {"[--type] " + std::string(type) + ": language models are trained in f32 or bf16"});
  for (const char* type : {"int8", "fp16", "bf61"})
    expect_error(2, {"train", "lora", "--type", type},
                 {"[--type] " + std::string(type) + ": LoRAs are trained in f32, bf16 or e4m3"});
}

}  // namespace
}  // namespace cli
