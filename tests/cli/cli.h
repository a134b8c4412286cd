// Runs the command line as a user does: a process, its output, its exit code.
#pragma once
#include <sys/types.h>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace cli {

struct Finished {
  int code = -1;  ///< exit code, or 128 + signal
  std::string out, err;
  double seconds = 0;
};

/// A running `tenon`, started in `folder`, where `prepare` runs in the process before it becomes tenon.
class Process {
 public:
  Process(std::vector<std::string> arguments, const std::filesystem::path& folder,
          const std::vector<std::string>& environment = {}, const std::function<void()>& prepare = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  void signal(int number) const;
  /// Waits until stderr holds `text` or the process ends; true if it does.
  bool wait_for_log(const std::string& text, double seconds) const;
  /// Waits until the file has this many lines or the process ends; true if it has.
  bool wait_for_lines(const std::filesystem::path& file, int64_t count, double seconds) const;
  Finished finish();

 private:
  bool wait_until(const std::function<bool()>& condition, double seconds) const;

  pid_t pid_ = -1;
  std::filesystem::path out_, err_;
  std::chrono::steady_clock::time_point begin_;
};

/// A test with a folder of its own, gone afterwards, and a tiny model beside it.
class CliTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  Finished tenon(std::vector<std::string> arguments, const std::vector<std::string>& environment = {},
                 const std::function<void()>& prepare = {}) const;
  /// Expects this exit code and one line "tenon: error: .." with all `parts` in it, of at most 500 bytes that a
  /// terminal can be given, nothing on stdout, and no new file.
  void expect_error(int code, std::vector<std::string> arguments, const std::vector<std::string>& parts) const;
  /// Runs it for each of `lines`, and kills it at a random moment within `seconds` once `log` has so many lines: a
  /// busy machine's time for a whole run says nothing of when the next one ends. How many were killed before they
  /// ended.
  int killed(const std::vector<std::string>& arguments, const std::filesystem::path& log,
             const std::vector<int64_t>& lines, double seconds) const;
  /// Names in the test's folder, sorted.
  std::vector<std::string> files() const;
  std::filesystem::path folder() const { return folder_; }
  /// A diffusers folder of the tiny model, written once a process.
  static std::string model();

 private:
  std::filesystem::path folder_;
};

}  // namespace cli
