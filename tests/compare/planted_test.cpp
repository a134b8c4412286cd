// Programs that compare, run on a CPU backend whose every launch is wrong in one place (plant/plant.cpp): the examples,
// the consumer, `tenon verify` and the launch tests must all fail. (Their own tests check that they pass without the
// fault.)
#include <gmock/gmock.h>

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

namespace {

using testing::HasSubstr;

struct Finished {
  int code;
  std::string out;
};

Finished run(const std::string& command, const std::string& fault) {
  const std::string line = (fault.empty() ? "" : "LD_PRELOAD='" PLANT_LIBRARY "' PLANTED_FAULT=" + fault + " ") +
                           TENON_BINARY_DIR "/bin/" + command + " 2>&1";
  FILE* pipe = popen(line.c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot run " + line);
  Finished f;
  std::array<char, 4096> part;
  for (size_t n; (n = fread(part.data(), 1, part.size(), pipe)) > 0;) f.out.append(part.data(), n);
  const int status = pclose(pipe);
  f.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return f;
}

std::string lines_with(const std::string& part, const std::string& text) {
  std::istringstream in(text);
  std::string out;
  for (std::string line; std::getline(in, line);)
    if (line.find(part) != std::string::npos) out += line + "\n";
  return out;
}

class Planted : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
#ifdef PLANT_SANITIZED
    GTEST_SKIP() << "a sanitizer's library must be loaded first";
#endif
  }
};

TEST_P(Planted, ExamplesFail) {
  for (const std::string name : {"example_conv_silu", "example_permuted_result", "example_residual", "consumer"}) {
    EXPECT_EQ(run(name, "").code, 0) << name;
    const Finished f = run(name, GetParam());
    EXPECT_EQ(f.code, 1) << name << ": " << f.out;
    EXPECT_THAT(f.out, HasSubstr(" differ, the first at ")) << name;
  }
}

TEST_P(Planted, EveryGateOfVerifyFails) {
  const std::string verify = "tenon verify -m random:tiny --part text --type f32 --json";
  EXPECT_EQ(nlohmann::json::parse(run(verify, "").out).at("failed"), 0);
  const Finished f = run(verify, GetParam());
  EXPECT_EQ(f.code, 5) << f.out;
  const auto report = nlohmann::json::parse(f.out);
  EXPECT_EQ(report.at("passed"), 0) << f.out;
  EXPECT_GE(report.at("failed"), 20);
  for (const auto& c : report.at("cases"))
    EXPECT_THAT(c.at("note").get<std::string>(), HasSubstr(" differ, the first at ")) << c;
}

TEST_P(Planted, GatesOfQuantisedRowsFail) {
  const std::string verify =
      "tenon verify -m z-image-shapes --part transformer --type e4m3 --no-parity --device cpu --only 't8[38]' --json";
  const auto right = nlohmann::json::parse(run(verify, "").out);
  EXPECT_EQ(right.at("passed"), 2);
  for (const auto& c : right.at("cases"))
    EXPECT_THAT(c.at("quantized").get<std::string>(), HasSubstr("bytes are equal"));
  const Finished f = run(verify, GetParam());
  EXPECT_EQ(f.code, 5) << f.out;
  const auto report = nlohmann::json::parse(f.out);
  EXPECT_EQ(report.at("failed"), 2) << f.out;
  for (const auto& c : report.at("cases"))
    EXPECT_THAT(c.at("note").get<std::string>(), HasSubstr("% of ")) << c;  // wording of the gates
}

TEST_P(Planted, EveryLaunchTestFails) {
  const std::string tests =  // all but slow ones and those that run no launch
      "test_skeletons --gtest_filter='-*FullSize*:*IsAModelError:Backends.*:NewSkeleton.ThePlannerAsksIt:"
      "NewSkeleton.SaysWhyNot:NewView.Meaning:I8BlocksLaunch.OnlyLinearLayers:RowBroadcast.*'";
  const Finished f = run(tests, GetParam());
  EXPECT_EQ(f.code, 1);
  EXPECT_EQ(lines_with("[       OK ]", f.out), "");
  const Finished plans = run("test_planned --gtest_filter='ReductionsBeside*'", GetParam());
  EXPECT_EQ(plans.code, 1);
  EXPECT_EQ(lines_with("[       OK ]", plans.out), "");
}

TEST_P(Planted, NetworksFail) {
  for (const auto& [name, says] :
       {std::pair<std::string, const char*>{"test_models --gtest_filter='*VitParity*EqualsTheReference/timm'",
                                            " differ, the first at "},
        {"test_pipelines --gtest_filter='WholePictures.AgreeWithDiffusers'", "wrote"}}) {  // pipelines check for NaN
    const Finished f = run(name, GetParam());
    EXPECT_EQ(f.code, 1) << name;
    EXPECT_THAT(f.out, HasSubstr(says)) << name;
  }
}

// Operands in memory are coarse, but exact: they excuse no error of a product. (A launch that quantises its rows itself
// may round some of them the other way.)
TEST(PlantedScale, ProductsOfStoredE4m3RowsFail) {
#ifdef PLANT_SANITIZED
  GTEST_SKIP() << "a sanitizer's library must be loaded first";
#endif
  for (const std::string layer : {"feed_forward.w2", "attention.to_out.0"}) {
    const std::string verify =
        "tenon verify -m z-image-shapes --part transformer --type e4m3 --no-parity --device cpu --only 'layers.*." +
        layer + "' --json";
    EXPECT_EQ(nlohmann::json::parse(run(verify, "").out).at("failed"), 0);
    const auto report = nlohmann::json::parse(run(verify, "scale").out);
    EXPECT_EQ(report.at("passed"), 0) << report;
    EXPECT_GE(report.at("failed"), 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, Planted, testing::Values("nan", "tile"),
                         [](const auto& fault) { return fault.param; });

}  // namespace
