// Checkpoints of a run: folders that appear whole or not at all, and the right to write into the run's folder.
//
//   OUT/checkpoint-40/  model.safetensors      the masters, f32, and the files beside them (config.json,
//   tokenizer.json, ..),
//                                              so that it is a model by itself
//                       optimizer.safetensors  the moments, "<moment>.<parameter>"
//                       ema.safetensors        the averages, if they are kept
//                       trainer.json           {"step", "run"}: what the loop needs to go on
//
// Of an adapter there is adapter_model.safetensors with adapter_config.json, as PEFT has them, in the place of the
// model.
//
// A folder is written under another name, synced, and renamed. What a process that was killed had begun is removed by
// the next one.
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

namespace tenon::train {

/// The only writer of a run's folder while it lives. Made if there is none; removes what a killed writer left.
class RunFolder {
 public:
  /// Error(Usage) if another process has it, or it cannot be made.
  explicit RunFolder(std::filesystem::path path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  /// Steps of the checkpoints that are there, ascending.
  std::vector<int64_t> steps() const;
  std::filesystem::path checkpoint(int64_t step) const;

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};
/// What `step` (counted from 1) returns. A number that went bad in it is said with the step and the last checkpoint.
nlohmann::ordered_json named_step(const RunFolder& folder, int64_t number,
                                  const std::function<nlohmann::ordered_json()>& step);

/// Where parameters are written, and by which names.
struct ParameterFile {
  std::string weights = "model.safetensors", config = "config.json";  ///< config: none if empty
  std::string prefix;                                                 ///< of the names in the file
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
};

/// What goes into a checkpoint beside the parameters.
struct CheckpointContent {
  int64_t step = 0;
  nlohmann::ordered_json run;
  std::map<std::string, std::string> beside;  ///< texts of further files, by name
  nlohmann::ordered_json config;              ///< config.json
  ParameterFile file;
};

/// Writes a checkpoint and removes the oldest, so that `keep` remain (0: all), but for those in `kept`. Error(Internal)
/// if the system cannot write, Error(Numeric) for weights that are no numbers; then those that were there stay.
void write_checkpoint(const RunFolder& folder, const Parameters& parameters, const Optimizer& optimizer,
                      const CheckpointContent& content, int64_t keep, const std::vector<int64_t>& kept = {});
/// The model's part of a checkpoint, into a folder: the masters, or their averages where they are kept.
void write_model(const std::filesystem::path& folder, const Parameters& parameters, const CheckpointContent& content);

/// What every run records of how it learns, of its options: a run that goes on must have the same.
template <class Options>
nlohmann::ordered_json recipe_json(const Options& o, const Backend& backend) {
  const auto& [beta1, beta2, eps, weight_decay] = o.optimizer_options;
  nlohmann::ordered_json out = {
      {"optimizer", o.optimizer},
      {"optimizer_options", {beta1, beta2, eps, weight_decay}},
      {"schedule", {o.schedule.peak, static_cast<int>(o.schedule.decay), o.schedule.warm_up, o.schedule.least}},
      {"clip", o.clip},
      {"ema", o.ema},
      {"seed", o.seed}};
  // What is computed twice has the same bits on a processor. A compiler of fused kernels may round elsewhere, and
  // logits come in other parts there.
  if (backend.records() && o.arena_bytes > 0) out["max_memory_bytes"] = o.arena_bytes;
  return out;
}

/// What a checkpoint says of its run.
struct Resumed {
  int64_t step = 0;
  nlohmann::json run;
};
/// Masters, moments and averages of the newest checkpoint, to the bit, and what it says; nothing if there is none.
/// Publishes. Error(Usage) with the text `otherwise`, and the first that differs, if its run has other "options";
/// Error(Model) for a checkpoint that is not complete or of other parameters.
std::optional<Resumed> read_newest(const RunFolder& folder, const nlohmann::ordered_json& options,
                                   const char* otherwise, const ParameterFile& file, Parameters& parameters,
                                   const Optimizer& optimizer);

}  // namespace tenon::train
