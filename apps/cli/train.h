// Shared by the methods of `tenon train`.
#pragma once
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/cli/cancel.h"
#include "apps/cli/verb.h"
#include "tenon/core/clock.h"
#include "tenon/core/log.h"
#include "tenon/core/text.h"

namespace tenon::cli {

Action declare_train_grpo(CLI::App& app, const Common& common);
Action declare_train_lora(CLI::App& app, const Common& common);

/// "--max-train-steps,--max_train_steps": a flag in this program's spelling and in that of diffusers' scripts.
std::string both_spellings(const std::string& name);
/// Declares a flag for an integer of at least `least`.
void declare_count(CLI::App& app, const std::string& flag, int64_t& value, const char* help, int64_t least);
/// --lr-warmup-steps, or --warmup-steps.
void declare_warm_up(CLI::App& app, int64_t& steps);
/// Declares a run's seed. There is no random default, because a resumed run must have the same seed.
void declare_seed(CLI::App& app, uint64_t& seed, const char* help);

/// How to show a run in progress.
struct RunShown {
  int64_t first = 0, steps = 0;                                    ///< steps already done; steps of the whole run
  std::string output;                                              ///< printed to stdout at the end
  std::function<std::string(const nlohmann::ordered_json&)> text;  ///< text for a line of metrics; empty: not shown
};

/// Shows metrics as they come: as JSON on stdout if asked for, else as a line on stderr, which on a terminal the next
/// step's replaces.
class LiveLine {
 public:
  LiveLine(const Common& common, const RunShown& run);
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;
  void operator()(const nlohmann::ordered_json& metrics);

 private:
  const RunShown& run_;
  bool quiet_, json_, terminal_, drawn_ = false;
  Clock::time_point begin_ = Clock::now();
};

/// Runs a training to its end, or until the step during which a signal comes. Returns the exit code.
template <class Training>
int run_training(const Common& common, const RunShown& shown, Training& training) {
  const TurnInterrupt signals({kStopSignals.begin(), kStopSignals.end()});
  bool whole = false;
  if (training.step() > shown.steps)
    spdlog::warn("step {} has been reached already, beyond --steps {}: nothing is trained", training.step(),
                 shown.steps);
  {
    LiveLine line(common, shown);
    whole = training.run([&](const nlohmann::ordered_json& m) { line(m); }, [&] { return signals.asked() != 0; });
  }
  if (!whole) {
    std::cerr << "tenon: interrupted after step " << training.step() << ", which was saved as a checkpoint\n";
    return kSignalBase + signals.asked();
  }
  if (!common.json) std::cout << escaped(shown.output) << "\n";
  return 0;
}

}  // namespace tenon::cli
