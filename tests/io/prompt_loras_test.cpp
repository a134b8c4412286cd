// LoRAs named in prompts.
#include "tenon/io/prompt_loras.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/core/error.h"

namespace tenon {
namespace {

std::string without_loras(std::string prompt, std::vector<PromptLora> expected) {
  EXPECT_EQ(take_loras(prompt, "prompt"), expected);
  return prompt;
}

TEST(PromptLoras, AreTakenOut) {
  EXPECT_EQ(without_loras("a cat", {}), "a cat");
  EXPECT_EQ(without_loras(" a cat ", {}), " a cat ");
  EXPECT_EQ(without_loras("a cat <lora:fur:0.8> in a hat", {{"fur", 0.8}}), "a cat in a hat");
  EXPECT_EQ(without_loras("<LoRA:fur> a cat<lora:styles/ink.v2:-1e-1>", {{"fur", 1}, {"styles/ink.v2", -0.1}}),
            "a cat");
  EXPECT_EQ(without_loras("a <lora:x:1> <lora:y:2>, b", {{"x", 1}, {"y", 2}}), "a , b");
  EXPECT_EQ(without_loras("<lora:x:1>", {{"x", 1}}), "");
  EXPECT_EQ(without_loras("<lora:x:+0.5>", {{"x", 0.5}}), "");
  EXPECT_EQ(without_loras("a <lora> <3", {}), "a <lora> <3");
}

TEST(PromptLoras, WrongOnes) {
  for (std::string prompt : {"<lora:", "<lora:x", "<lora:>", "<lora::1>", "<lora:x:>", "<lora:x:much>", "<lora:x:1:2>",
                             "<lora:x:+>", "<lora:x:+-1>", "<lora:x:++1>", "<lora:x:nan>", "<lora:x:inf>",
                             "<lora:/etc/x:1>", "<lora:../x:1>", "<lora:a/../../x>"}) {
    try {
      take_loras(prompt, "prompt");
      ADD_FAILURE() << prompt;
    } catch (const Error& e) {
      EXPECT_EQ(e.exit_code(), 2);
      EXPECT_THAT(e.what(), testing::HasSubstr("[prompt]"));
    }
  }
}

}  // namespace
}  // namespace tenon
