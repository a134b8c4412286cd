// Metrics of a run's steps: metrics.jsonl in its folder, one JSON object per line, and the same numbers as an event
// file for TensorBoard.
#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "tenon/train/event_file.h"

namespace tenon::train {

inline constexpr const char* kMetricsFile = "metrics.jsonl";

/// Whether a line is of an evaluation rather than a training step.
bool is_evaluation(const nlohmann::json& line);

/// The lines in a run's folder, in order; the file may be growing. Lines that are not objects with an integer "step",
/// such as an incomplete one, are skipped and counted in `passed`. Linear in the file's size. Error(Usage) if there is
/// no such file.
std::vector<nlohmann::json> read_metrics(const std::filesystem::path& folder, int64_t* passed = nullptr);

struct MetricsLogOptions {
  bool events = false;          ///< also write an event file; it declares void what others of this folder have later
  bool evaluation_due = false;  ///< the last step's evaluation will be repeated, too
};

class MetricsLog {
 public:
  /// Drops lines of steps after `last`, which will be repeated, and incomplete lines. Warns if a step up to `last` has
  /// no line. Error(Usage) if there is a file of that name without a line of a run.
  MetricsLog(const std::filesystem::path& folder, int64_t last, const MetricsLogOptions& options = {});
  /// Appends a line; it is completely written on return. Error(Internal) if the system cannot write, Error(Usage) for
  /// metrics without a step.
  void add(const nlohmann::ordered_json& metrics);

 private:
  std::filesystem::path path_;
  std::unique_ptr<EventFile> events_;
};

}  // namespace tenon::train
