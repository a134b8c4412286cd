// Rewards written in Python, with the signature that TRL has:
//
//   def reward(prompts, completions, **columns) -> list[float]:
//
// prompts and completions are lists of strings, a row each; columns are lists of what the data's rows hold beside the
// prompt ("answer", ..). A value may be None: the reward says nothing of that row.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tenon/train/judged.h"

namespace tenon::train {

/// A script in a process of its own: the `python3` on PATH, which keeps what it has imported from call to call. What it
/// prints goes to stderr; its stdin is empty. The process ends with this object, and with this process.
class RewardScript {
 public:
  /// Imports the script. `seconds`: the longest that this, and each call, may take. Error(Usage) if there is no such
  /// file, it cannot be imported in that time, or defines no function `reward`; if there is no python3.
  RewardScript(std::filesystem::path file, double seconds);
  ~RewardScript();
  RewardScript(const RewardScript&) = delete;
  RewardScript& operator=(const RewardScript&) = delete;

  /// The file's name without ".py".
  std::string name() const { return file_.stem().string(); }
  /// SHA-256 of the script.
  const std::string& hash() const { return hash_; }
  /// A value for each row; 0 for None. Asks check_stop(). Error(Internal): the function throws, takes too long, gives
  /// another number of values or something that is no number, or its process ends. Error(Numeric): a value is not
  /// finite. The script is not called again behind an error.
  std::vector<double> operator()(std::span<const Judged> rows);

 private:
  void start();
  void end();
  nlohmann::json call(const nlohmann::json& request, const std::string& doing);
  void send(std::string_view text, double deadline, const std::string& doing);
  nlohmann::json reply(double deadline, const std::string& doing);
  std::string receive(double deadline, const std::string& doing);
  void wait(short events, double deadline, const std::string& doing);
  [[noreturn]] void fail(const std::string& what);

  std::filesystem::path file_;
  std::string hash_;
  double seconds_;
  int channel_ = -1;
  pid_t process_ = -1;
};

}  // namespace tenon::train
