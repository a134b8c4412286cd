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

/// The command line as built, and the one that has the verb of new_files/ as well.
inline constexpr char kProgram[] = TENON_BINARY_DIR "/bin/tenon", kProgramWithNewVerb[] = NEW_FILES "/tenon";
/// The environment in which the program loads these files of new_files/ (built as libraries).
std::vector<std::string> with_new_files(const std::vector<std::string>& names);

/// A running `tenon`, started in `folder`; `prepare` runs in the child process before it becomes tenon.
class Process {
 public:
  Process(std::vector<std::string> arguments, const std::filesystem::path& folder,
          const std::vector<std::string>& environment = {}, const std::function<void()>& prepare = {},
          const std::string& program = kProgram);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  void signal(int number) const;
  /// Waits until stderr holds `text` or the process ends; true if it does.
  bool wait_for_log(const std::string& text, double seconds) const;
  /// Waits until the file has at least this many lines or the process ends; true if it has.
  bool wait_for_lines(const std::filesystem::path& file, int64_t count, double seconds) const;
  Finished finish();

 private:
  bool wait_until(const std::function<bool()>& condition, double seconds) const;

  pid_t pid_ = -1;
  std::filesystem::path out_, err_;
  std::chrono::steady_clock::time_point begin_;
};

/// A test with its own temporary folder and a tiny model.
class CliTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  Finished tenon(std::vector<std::string> arguments, const std::vector<std::string>& environment = {},
                 const std::function<void()>& prepare = {}) const;
  /// Expects this exit code, one line "tenon: error: .." that contains all `parts` and is at most 500 bytes safe for a
  /// terminal, nothing on stdout, and no new file.
  void expect_error(int code, std::vector<std::string> arguments, const std::vector<std::string>& parts) const;
  /// Runs it for each of `lines`, and kills it at a random moment within `seconds` once `log` has that many lines (on a
  /// busy machine the time of a whole run does not predict when the next one ends). Returns how many were killed before
  /// they ended.
  int killed(const std::vector<std::string>& arguments, const std::filesystem::path& log,
             const std::vector<int64_t>& lines, double seconds) const;
  /// Names in the test's folder, sorted.
  std::vector<std::string> files() const;
  std::filesystem::path folder() const { return folder_; }
  /// A diffusers folder of the tiny model, written once per process.
  static std::string model();

 private:
  std::filesystem::path folder_;
};

}  // namespace cli
