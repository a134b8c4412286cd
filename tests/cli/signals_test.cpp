// SIGINT, SIGTERM and SIGHUP end a run within half a second, whatever it is doing, and leave no file.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/cli/cli.h"

namespace cli {
namespace {

// Extra time that a slow machine may take to end a process.
constexpr double kSlack = 1.0, kHalfASecond = 0.5;

class CliSignals : public CliTest {
 protected:
  void TearDown() override {
    std::filesystem::remove_all(cache());
    CliTest::TearDown();
  }
  // So that kernels compiled before the signal are kept.
  std::string cache() const { return folder().string() + "-cache"; }
  // Starts tenon, sends the signal after `after` seconds, and expects it to end in time.
  void expect_answer(const std::vector<std::string>& arguments, double after,
                     const std::function<void()>& prepare = {}) const {
    const std::vector<std::string> before = files();
    for (const auto& [number, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}, std::pair{SIGHUP, 129}}) {
      Process process(arguments, folder(), {"TENON_CACHE_DIR=" + cache()}, prepare);
      std::this_thread::sleep_for(std::chrono::duration<double>(after));
      const auto begin = std::chrono::steady_clock::now();
      process.signal(number);
      const Finished f = process.finish();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      EXPECT_EQ(f.code, code) << arguments[0] << ": " << f.err;
      EXPECT_LE(seconds, kHalfASecond + kSlack) << arguments[0];
      EXPECT_NE(f.err.find("tenon: error: interrupted\n"), std::string::npos) << f.err;
      EXPECT_EQ(f.out, "");
      EXPECT_EQ(files(), before);
    }
  }
};

TEST_F(CliSignals, WhileAPromptIsAwaited) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const auto silent = [&] { dup2(ends[0], STDIN_FILENO); };
  expect_answer({"generate", "-", "-m", model()}, 0.3, silent);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(CliSignals, WhileWeightsArePacked) {
  expect_answer({"bench", "-m", "random:sd15", "--runs", "1", "--no-anchors", "--no-unfused", "-q"}, 1.0);
}

TEST_F(CliSignals, WhileANetworkIsPlanned) {
  expect_answer({"explain", "-m", "random:sd15", "--part", "all", "--no-fusion"}, 0.15);
}

TEST_F(CliSignals, WhileAHeaderIsRead) {
  constexpr size_t kBytes = 90'000'000;
  std::string header = R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":[0)";
  while (header.size() < kBytes) header += ",0";
  header += "]}}";
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
  std::ofstream(folder() / "slow.safetensors", std::ios::binary) << length << header;
  expect_answer({"inspect", "slow.safetensors"}, 0.2);
}

// A shell sets SIGINT to ignored for background processes; SIGTERM still works.
TEST_F(CliSignals, AnIgnoredSignalStaysIgnored) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Process process({"generate", "-", "-m", model()}, folder(), {}, [&] {
    dup2(ends[0], STDIN_FILENO);
    ::signal(SIGINT, SIG_IGN);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  process.signal(SIGINT);
  EXPECT_FALSE(process.wait_for_log("interrupted", 0.7));
  process.signal(SIGTERM);
  EXPECT_EQ(process.finish().code, 143);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(CliSignals, WhileKernelsAreCompiled) {
  const Finished probe = tenon({"compile", "-m", model(), "--part", "text", "-q"}, {"TENON_CACHE_DIR=" + cache()});
  if (probe.code == 6) GTEST_SKIP() << "no compiler of kernels here: " << probe.err;
  expect_answer({"compile", "-m", "random:sd15", "--part", "all", "-q"}, 1.5);
}

TEST_F(CliSignals, WhileALaunchRuns) {
  // At this size the VAE's first launches alone take seconds on one thread.
  expect_answer({"explain", "-m", "random:sd15", "--part", "vae-decode", "--time", "--threads", "1", "-W", "512", "-H",
                 "512", "-q"},
                2.0);
}

}  // namespace
}  // namespace cli
