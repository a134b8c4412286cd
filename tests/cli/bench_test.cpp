// oneDNN, the yardstick of `bench`: loaded if present; if not, reported missing in one line.
#include <dlfcn.h>

#include <fstream>

#include "tests/cli/cli.h"

namespace cli {
namespace {

bool has_onednn() { return dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL) != nullptr; }

class CliBench : public CliTest {
 protected:
  Finished bench(const std::vector<std::string>& more, const std::vector<std::string>& environment = {}) const {
    std::vector<std::string> arguments{"bench",  "-m",  "random:vit-s14", "-W", "28",           "-H",       "28",
                                       "--type", "f32", "--runs",         "1",  "--no-unfused", "--anchors"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tenon(arguments, environment);
  }
};

TEST_F(CliBench, FlagsOfAPeerWithoutOneAreNamed) {
  const Finished run = tenon({"bench", "--part", "text", "--runs", "1", "--no-anchors", "--no-unfused", "--peer-mode",
                              "eager", "--peer-python", "nowhere"});
  ASSERT_EQ(run.code, 0) << run.err;
  for (const char* flag : {"--peer-mode", "--peer-python"})
    EXPECT_NE(run.err.find("there is no --peer, so that " + std::string(flag) + " has no effect"), std::string::npos)
        << run.err;
}

TEST_F(CliBench, WithoutOneDnnSaysWhichPackageAndGoesOn) {
  std::ofstream(folder() / "libdnnl.so.2") << "no library";
  const std::string here = "LD_LIBRARY_PATH=" + folder().string();
  const Finished run = bench({"--json"}, {here});
  ASSERT_EQ(run.code, 0) << run.err;
  const size_t said = run.err.find("libdnnl2");
  EXPECT_NE(said, std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("libdnnl2", said + 1), std::string::npos) << run.err;
  const nlohmann::json j = nlohmann::json::parse(run.out);
  EXPECT_TRUE(j.at("onednn").is_null());
  EXPECT_GT(j.at("anchor_sum_ms"), 0);
  ASSERT_FALSE(j.at("anchors").empty());
  for (const auto& anchor : j.at("anchors")) {
    EXPECT_TRUE(anchor.contains("own_ms"));
    EXPECT_FALSE(anchor.contains("onednn_f32_ms")) << anchor;
  }
  const Finished env = tenon({"env", "--json"}, {here});
  ASSERT_EQ(env.code, 0) << env.err;
  EXPECT_NE(nlohmann::json::parse(env.out).at("onednn").get<std::string>().find("libdnnl2"), std::string::npos);
}

TEST_F(CliBench, TimesOneDnnOnEveryAnchor) {
  if (!has_onednn()) GTEST_SKIP() << "libdnnl2 is not installed";
  const Finished run = bench({"--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const nlohmann::json j = nlohmann::json::parse(run.out);
  EXPECT_TRUE(j.at("onednn").get<std::string>().starts_with("2.")) << j.at("onednn");
  for (const auto& anchor : j.at("anchors")) EXPECT_GT(anchor.value("onednn_f32_ms", 0.0), 0) << anchor;
}

// OpenMP reports the sizes of its teams.
TEST_F(CliBench, OneDnnRunsOnAsManyThreadsAsAskedFor) {
  if (!has_onednn()) GTEST_SKIP() << "libdnnl2 is not installed";
  for (const char* threads : {"1", "2"}) {
    const Finished run = bench({"--threads", threads}, {"OMP_NUM_THREADS=3", "OMP_DISPLAY_AFFINITY=TRUE",
                                                        "OMP_AFFINITY_FORMAT=a team of %{num_threads}"});
    ASSERT_EQ(run.code, 0) << run.err;
    const std::string said = run.err + run.out;
    EXPECT_EQ(said.find("a team of 3"), std::string::npos) << said;
    EXPECT_EQ(said.find("a team of 2") != std::string::npos, std::string(threads) == "2") << said;
  }
}

}  // namespace
}  // namespace cli
