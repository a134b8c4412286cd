// Edit distance, and the name that a misspelling was meant to be.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tenon/core/similar.h"

namespace tenon {
namespace {

TEST(Similar, DistanceCountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("steps", "steps"), 0);
  EXPECT_EQ(edit_distance("stps", "steps"), 1);
  EXPECT_EQ(edit_distance("stepps", "steps"), 1);
  EXPECT_EQ(edit_distance("stebs", "steps"), 1);
  EXPECT_EQ(edit_distance("setps", "steps"), 1);  // neighbours swapped
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("Euler A", "euler a"), 0);
}

TEST(Similar, NearestNameWithinAThirdOfTheLetters) {
  const std::vector<std::string> flags{"--steps", "--strength", "--seed", "--size"};
  EXPECT_EQ(closest("--stpes", flags), "--steps");
  EXPECT_EQ(closest("--sted", flags), "--seed");  // one edit; "--steps" is two away
  EXPECT_EQ(closest("--strenght", flags), "--strength");
  EXPECT_EQ(closest("--bogus", flags), "");
  EXPECT_EQ(closest("xy", std::vector<std::string>{"ab"}), "");
  EXPECT_EQ(closest("", flags), "");
  EXPECT_EQ(closest(std::string(100000, 'x'), flags), "");
}

TEST(Similar, TheOnlyNameThatBeginsSo) {
  const std::vector<std::string> verbs{"generate", "explain", "embed", "env"};
  EXPECT_EQ(closest("gen", verbs), "generate");
  EXPECT_EQ(closest("expl", verbs), "explain");
  EXPECT_EQ(closest("ge", verbs), "");
  EXPECT_EQ(closest("small", std::vector<std::string>{"small-tall-reg", "small-tall"}), "small-tall");
  EXPECT_EQ(closest("small", std::vector<std::string>{"small-a", "small-b"}), "");
  EXPECT_EQ(closest("verif", std::vector<std::string>{"verify all", "verify none"}), "");
}

TEST(Similar, Hint) {
  const std::vector<std::string> names{"euler", "ddim"};
  EXPECT_EQ(did_you_mean("eular", names), "did you mean 'euler'?");
  EXPECT_EQ(did_you_mean("magic", names), "");
  EXPECT_EQ(did_you_mean("magic", names, "samplers: euler, ddim"), "samplers: euler, ddim");
}

}  // namespace
}  // namespace tenon
