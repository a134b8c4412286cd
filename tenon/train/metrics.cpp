#include "tenon/train/metrics.h"

#include <cerrno>
#include <fstream>

#include "tenon/core/atomic_file.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"

namespace tenon::train {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxMetrics = size_t{1} << 30;

// The object of a complete line; null if no run could have written it.
nlohmann::json metrics_line(std::string_view line) {
  try {
    nlohmann::json out = parse_json(line, kMetricsFile, ErrorKind::Usage);
    const auto step = out.is_object() ? out.find("step") : out.end();
    if (step != out.end() && step->is_number_integer()) return out;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Usage) throw;
  }
  return {};
}

// Calls f(line including its end, object or null) for each line of `all`; the last may lack its end.
template <class F>
void each_line(std::string_view all, const F& f) {
  while (!all.empty()) {
    const size_t end = all.find('\n');
    const bool whole = end != std::string_view::npos;
    const std::string_view line = all.substr(0, whole ? end + 1 : all.size());
    f(line, whole ? metrics_line(line) : nlohmann::json());
    all.remove_prefix(line.size());
  }
}

// Returns the first training step that has no line.
int64_t drop_behind(const fs::path& path, int64_t last, bool due) {
  int64_t next = 1;
  if (!file_exists(path)) return next;
  const std::string all = read_file(path, kMaxMetrics);
  std::string kept;
  bool any = all.find('\n') == std::string::npos;  // nothing but a line that was never finished
  each_line(all, [&](std::string_view text, const nlohmann::json& line) {
    if (!line.is_object()) return;
    any = true;
    const auto step = line.at("step").get<int64_t>();
    if (step == next && !is_evaluation(line)) ++next;
    if (step < last || (step == last && !(due && is_evaluation(line)))) kept += text;
  });
  TENON_CHECK(Usage, any, path.string())
      << "has no metrics of a training step, so no run wrote it; move it, or choose another folder";
  if (kept != all) write_file(path, std::as_bytes(std::span(kept)), Overwrite::Yes);
  return next;
}

}  // namespace

bool is_evaluation(const nlohmann::json& line) { return !line.contains("loss"); }

std::vector<nlohmann::json> read_metrics(const fs::path& folder, int64_t* passed) {
  const fs::path path = folder / kMetricsFile;
  std::vector<nlohmann::json> out;
  int64_t not_read = 0;
  each_line(read_argument_file(path, kMaxMetrics), [&](std::string_view, nlohmann::json line) {
    if (line.is_object())
      out.push_back(std::move(line));
    else
      ++not_read;
  });
  if (passed) *passed = not_read;
  return out;
}

MetricsLog::MetricsLog(const fs::path& folder, int64_t last, const MetricsLogOptions& options)
    : path_(folder / kMetricsFile) {
  const int64_t missing = drop_behind(path_, last, options.evaluation_due);
  if (missing <= last)
    spdlog::warn("{}: no line of step {}, although the run goes on after step {}; what is missing stays so",
                 path_.string(), missing, last);
  if (options.events) events_ = std::make_unique<EventFile>(path_.parent_path(), last + 1);
}

void MetricsLog::add(const nlohmann::ordered_json& metrics) {
  TENON_CHECK(Usage, metrics.is_object() && metrics.contains("step") && metrics["step"].is_number_integer(), "metrics")
      << shown_json(metrics) << ": expected an object with an integer \"step\"";
  std::ofstream file(path_, std::ios::app);
  file << json_text(metrics) << "\n";
  TENON_CHECK(Internal, file.flush().good(), path_.string()) << "cannot be written: " << system_reason(errno);
  if (!events_) return;
  const std::string kind = is_evaluation(metrics) ? "evaluation/" : "train/";
  std::vector<EventFile::Scalar> scalars;
  for (const auto& [key, value] : metrics.items())
    if (value.is_number() && key != "step") scalars.push_back({kind + key, value.get<float>()});
  events_->add(metrics.at("step"), scalars);
}

}  // namespace tenon::train
