// oneDNN, the yardstick of `bench`: loaded if present; if not, reported missing in one line.
#include <dlfcn.h>

#include <array>
#include <fstream>
#include <thread>

#include "apps/cli/median.h"
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
  // What `bench` says of the anchors of a part of the embedded language model.
  nlohmann::json anchors_of(const std::string& part, const std::string& type) const {
    const Finished run =
        tenon({"bench", "-m", "sums", "--part", part, "--type", type, "--runs", "1", "--no-unfused", "--json"});
    EXPECT_EQ(run.code, 0) << run.err;
    return nlohmann::json::parse(run.out).at("anchors");
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

// A mode that the peer would leave out is an error before anything is measured, on whichever device.
TEST_F(CliBench, PeerModesOfAnotherDeviceAreRefused) {
  for (const auto& [device, mode, other] : {std::array{"cpu", "graphs", "GPU"}, {"cuda", "frozen", "CPU"}})
    expect_error(2, {"bench", "--part", "text", "--device", device, "--peer", "torch", "--peer-mode", mode},
                 {"[--peer-mode]", mode, other, "expected eager"});
}

// Calls that are slow until they have run twice, as on a device that records, are timed as fast as they then are.
TEST(MedianOfTurns, EveryCallRunsThreeTimesBeforeItIsTimed) {
  std::vector<int> made(30);
  int waits = 0;
  std::vector<std::function<void()>> calls;
  for (int& count : made)
    calls.emplace_back([&count] {
      if (++count <= 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    });
  EXPECT_LT(tenon::cli::median_of_turns(calls, [&waits] { ++waits; }), 2.5);
  for (const int count : made) EXPECT_EQ(count, waits);
  EXPECT_GE(waits, 6);
}

// Attention over a cache is timed over the keys that are there, half of it, and drawing is no product.
TEST_F(CliBench, AnchorsOfALanguageModel) {
  int attentions = 0;
  for (const auto& a : anchors_of("decode", "f32")) {
    const std::string text = a.at("anchor");
    if (!text.starts_with("attention")) continue;
    ++attentions;
    EXPECT_NE(text.find(", 64 keys, "), std::string::npos) << text;
  }
  EXPECT_EQ(attentions, 1);
  const auto of_token = anchors_of("token", "f32");
  EXPECT_FALSE(of_token.empty());
  for (const auto& a : of_token) EXPECT_GT(a.at("flops"), 0) << a;
}

// Quantised products are timed as such.
TEST_F(CliBench, AnchorsKeepTheirArithmetic) {
  int products = 0;
  const auto anchors = anchors_of("decode", "int8");
  for (const auto& a : anchors)
    if (a.at("anchor").get<std::string>().ends_with(" in i8")) {
      ++products;
      EXPECT_GT(a.at("own_ms"), 0) << a;
    }
  EXPECT_GT(products, 0) << anchors;
}

// Bytes and FLOP of the keys that there are cannot be known from a plan: no share of the roofline is claimed.
TEST_F(CliBench, AttentionOverACacheHasNoRoofline) {
  const Finished run = tenon({"explain", "-m", "sums", "--part", "decode", "--type", "f32", "--time", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  int attentions = 0;
  const auto launches = nlohmann::json::parse(run.out).at("launches");
  for (const auto& l : launches) {
    const bool attention = l.at("skeleton") == "attention";
    attentions += attention;
    for (const char* rate : {"flops", "gb_per_s", "roofline_share"}) EXPECT_EQ(l.at(rate).is_null(), attention) << l;
  }
  EXPECT_GT(attentions, 0);
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
