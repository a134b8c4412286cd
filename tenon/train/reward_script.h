// Rewards written in Python, with TRL's signature:
//
//   def reward(prompts, completions, **columns) -> list[float]:
//
// prompts and completions are lists of strings, one per row; columns are lists of the data's other fields ("answer",
// ..), the same ones in every call. A value may be None: no reward for that row.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tenon/train/judged.h"

namespace tenon::train {

/// Error(Usage) unless it can be the time limit of a reward script's calls: finite and above 0.
void check_reward_seconds(double seconds);

/// Runs a script in its own process, the `python3` on PATH, which keeps its imports between calls. Its output goes to
/// stderr; its stdin is empty. The process, and what the script starts, ends with this object or this process.
class RewardScript {
 public:
  /// Imports the script. `seconds`: time limit of each call; the import may take as long, and at least a minute.
  /// Error(Usage) if there is no such file or no python3, or the script cannot be imported in time or defines no
  /// function `reward`.
  RewardScript(std::filesystem::path file, double seconds);
  ~RewardScript();
  RewardScript(const RewardScript&) = delete;
  RewardScript& operator=(const RewardScript&) = delete;

  /// The file's name without ".py".
  std::string name() const { return file_.stem().string(); }
  const std::filesystem::path& file() const { return file_; }
  /// SHA-256 of the script.
  const std::string& hash() const { return hash_; }
  /// One value per row; 0 for None. The script gets the columns of any row, and `columns`, with None where a row has
  /// none. Asks check_stop(). Error(Internal): the function throws, takes too long, returns a
  /// wrong number of values or something that is not a number, or its process ends. Error(Numeric): a value is not
  /// finite. After an error the script is not called again.
  std::vector<double> operator()(std::span<const Judged> rows, const std::set<std::string>& columns = {});

 private:
  struct Limit {
    double seconds, end;  // how long it may take; when that time is over
  };
  void start();
  void end();
  nlohmann::json call(const nlohmann::json& request, const std::string& doing);
  void send(std::string_view text, const Limit& limit, const std::string& doing);
  nlohmann::json reply(const Limit& limit, const std::string& doing);
  std::string receive(const Limit& limit, const std::string& doing);
  void wait(short events, const Limit& limit, const std::string& doing);
  [[noreturn]] void fail(const std::string& what);
  void fail_if_told(const nlohmann::json& answer);

  std::filesystem::path file_;
  std::string hash_;
  double seconds_;
  int channel_ = -1;
  pid_t process_ = -1;
};

}  // namespace tenon::train
