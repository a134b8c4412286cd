// What a run says of its steps: metrics.jsonl in its folder, one JSON object a line, and for TensorBoard the same
// numbers as an event file.
#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "tenon/train/event_file.h"

namespace tenon::train {

inline constexpr const char* kMetricsFile = "metrics.jsonl";

/// Whether a line is of an evaluation; else it is of a step of training.
bool is_evaluation(const nlohmann::json& line);

/// The lines of a run's folder in their order, while somebody may be writing them: what is no object with a whole
/// number "step", as a line that is not finished, is passed over, and `passed` counts it. Linear in the file's size.
/// Error(Usage) where there is no such file.
std::vector<nlohmann::json> read_metrics(const std::filesystem::path& folder, int64_t* passed = nullptr);

class MetricsLog {
 public:
  /// Lines of steps behind `last` are dropped, and what is not finished: they will be made again. `events`: writes an
  /// event file too, which says that what other ones of this folder have behind `last` is void.
  MetricsLog(const std::filesystem::path& folder, int64_t last, bool events);
  /// Adds a line, whole when this returns. Error(Internal) if the system cannot write.
  void add(const nlohmann::ordered_json& metrics);

 private:
  std::filesystem::path path_;
  std::unique_ptr<EventFile> events_;
};

}  // namespace tenon::train
