// Checkpoints of a run, which are folders written atomically, and the lock on the run's folder.
//
//   OUT/checkpoint-40/  model.safetensors      the masters, f32, and other files beside them (config.json,
//                                              tokenizer.json, ..), so that the folder is a complete model
//                       optimizer.safetensors  the moments, "<moment>.<parameter>"
//                       ema.safetensors        the averages, if they are kept
//                       trainer.json           {"step", "run"}: what the loop needs to continue
//
// For an adapter there is adapter_model.safetensors with adapter_config.json, in PEFT's format, instead of the model.
//
// A folder is written under a temporary name, synced, and renamed. The next process removes what a killed one left.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tenon/optim/optimizer.h"
#include "tenon/train/parameters.h"
#include "tenon/train/schedule.h"

namespace tenon::train {

/// Creates the folder and those above it. Error(Usage) if a file is in the way, Error(Internal) if the system cannot.
void create_folder(const std::filesystem::path& folder);

/// The only writer of a run's folder during its lifetime. Creates the folder; removes what a killed writer left.
class RunFolder {
 public:
  /// Error(Usage) if another process holds the folder, or it cannot be created.
  explicit RunFolder(std::filesystem::path path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  /// Steps of the existing checkpoints, ascending.
  std::vector<int64_t> steps() const;
  std::filesystem::path checkpoint(int64_t step) const;

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};
/// Steps of the checkpoints in a folder, ascending; changes nothing. Error(Model) if it cannot be read.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& folder);
/// Returns the result of `step` (`number` counts from 1). An Error(Numeric) in it is reported with the step and the
/// last checkpoint.
nlohmann::ordered_json named_step(const RunFolder& folder, int64_t number,
                                  const std::function<nlohmann::ordered_json()>& step);

/// The file that parameters are written to, and their names in it.
struct ParameterFile {
  std::string weights = "model.safetensors", config = "config.json";  ///< config: no file if empty
  std::string prefix;                                                 ///< prefix of names in the file
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
};

/// Contents of a checkpoint besides the parameters.
struct CheckpointContent {
  int64_t step = 0;
  nlohmann::ordered_json run;
  std::map<std::string, std::string> beside;  ///< contents of further files, by name
  nlohmann::ordered_json config;              ///< config.json
  ParameterFile file;
};

/// Error(Usage) if a folder without checkpoints has a file of one of these names, which a new run would replace.
void check_unused(const std::filesystem::path& folder, const std::vector<std::string>& names);

/// Writes a checkpoint and removes the oldest until `keep` remain (0: all), never those in `kept` or another program's.
/// Error(Internal) if the system cannot write, Error(Numeric) for weights that are not finite; existing checkpoints are
/// then left alone. Error(Usage) for a step below 0, or before that of a checkpoint which is there (of another run: to
/// write it would mean to remove it as the oldest), or parameters without the optimizer's moments.
void write_checkpoint(const RunFolder& folder, const Parameters& parameters, const Optimizer& optimizer,
                      const CheckpointContent& content, int64_t keep, const std::vector<int64_t>& kept = {});
/// Writes a checkpoint's model into a folder: the masters, or their averages if these are kept.
void write_model(const std::filesystem::path& folder, const Parameters& parameters, const CheckpointContent& content);

/// A schedule as a recipe records it.
nlohmann::ordered_json schedule_json(const Schedule& s);
/// The options that determine what a run learns. A resumed run must have the same.
template <class Options>
nlohmann::ordered_json recipe_json(const Options& o, const Backend& backend) {
  const auto& [beta1, beta2, eps, weight_decay] = o.optimizer_options;
  nlohmann::ordered_json out = {
      {"optimizer", o.optimizer},
      {"optimizer_options", {{"beta1", beta1}, {"beta2", beta2}, {"eps", eps}, {"weight_decay", weight_decay}}},
      {"schedule", schedule_json(o.schedule)},
      {"clip", o.clip},
      {"ema", o.ema},
      {"seed", o.seed}};
  // Where rates decay, each depends on the number of steps. With a constant rate a run may be made longer.
  if (o.schedule.decay != Decay::Constant) out["steps"] = o.schedule.steps;
  // On a processor recomputed values have the same bits. A compiler of fused kernels may round them differently, and
  // there the logits are split into other parts.
  if (backend.records() && o.arena_bytes > 0) out["max_memory_bytes"] = o.arena_bytes;
  return out;
}

/// What a checkpoint records of its run.
struct Resumed {
  int64_t step = 0;
  nlohmann::json run;
};
/// Restores masters, moments and averages of the newest checkpoint bit for bit, publishes them, and returns its record;
/// empty if there is no checkpoint. If its run had other "options": Error(Usage) with the text `otherwise` and the
/// first difference. Error(Model) for a checkpoint that is incomplete or has other parameters, or numbers that are not
/// finite. `accept` is called with the record before anything is restored, and may throw.
std::optional<Resumed> read_newest(const RunFolder& folder, const nlohmann::ordered_json& options,
                                   const char* otherwise, const ParameterFile& file, Parameters& parameters,
                                   const Optimizer& optimizer, const std::function<void(const Resumed&)>& accept = {});

}  // namespace tenon::train
