// tenon plot: shows the curves of training runs on one page.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>

#include "apps/cli/output_names.h"
#include "apps/cli/page.h"
#include "apps/cli/verb.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/train/metrics.h"

namespace tenon::cli {
namespace {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct PlotFlags {
  std::vector<std::string> runs;
  std::string output;
  bool overwrite = false;
};

using Point = std::pair<int64_t, double>;

// Most points of a curve on a page; longer curves are reduced to their ends, which the table shows, and the minimum and
// maximum of each section between.
constexpr size_t kMaxPoints = 2000;
// Most steps whose sample pictures are on a page, and most bytes of such a picture.
constexpr size_t kMaxSamples = 12, kMaxSampleBytes = size_t{8} << 20;

std::vector<Point> thinned(const std::vector<Point>& all) {
  if (all.size() <= kMaxPoints) return all;
  std::vector<Point> out{all.front()};
  const size_t stretches = kMaxPoints / 2 - 1, between = all.size() - 2;
  for (size_t i = 0; i < stretches; ++i) {
    const auto begin = all.begin() + 1 + static_cast<std::ptrdiff_t>(i * between / stretches);
    const auto end = all.begin() + 1 + static_cast<std::ptrdiff_t>((i + 1) * between / stretches);
    auto [least, most] =
        std::minmax_element(begin, end, [](const Point& a, const Point& b) { return a.second < b.second; });
    if (most < least) std::swap(least, most);
    out.push_back(*least);
    if (most != least) out.push_back(*most);
  }
  out.push_back(all.back());
  return out;
}

// Distinguishes metrics of an evaluation from those of training that have the same name.
std::string curve_name(const nlohmann::json& line, const std::string& key) {
  return train::is_evaluation(line) && key != "evaluation_seconds" ? "evaluation." + key : key;
}

// A picture's bytes as a data URL.
std::string data_url(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out = "data:image/png;base64,";
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
  }
  return out;
}

// Sample pictures of a step: only PNGs in the run's own samples folder, whatever its metrics say.
ordered_json samples_of(const fs::path& run, const nlohmann::json& line) {
  ordered_json pictures = ordered_json::array();
  for (const nlohmann::json& sample : line.at("samples")) {
    if (!sample.is_object() || !sample.value("file", nlohmann::json()).is_string()) continue;
    const fs::path file = fs::path(sample.at("file").get<std::string>());
    const fs::path place = run / "samples" / file.filename();
    if (file.parent_path() != "samples" || !fs::is_regular_file(place)) continue;
    const std::string bytes = read_argument_file(place);
    if (bytes.size() > kMaxSampleBytes || !bytes.starts_with("\x89PNG")) continue;
    const nlohmann::json prompt = sample.value("prompt", nlohmann::json());
    pictures.push_back(
        {{"prompt", prompt.is_string() ? escaped(prompt.get<std::string>()) : ""}, {"picture", data_url(bytes)}});
  }
  return {{"step", line.at("step")}, {"pictures", pictures}};
}

// At most kMaxSamples steps with samples, including the first and the last.
ordered_json chosen_samples(const fs::path& run, const std::vector<nlohmann::json>& lines) {
  ordered_json out = ordered_json::array();
  const size_t count = std::min(lines.size(), kMaxSamples);
  for (size_t i = 0; i < count; ++i)
    out.push_back(samples_of(run, lines[count == 1 ? 0 : i * (lines.size() - 1) / (count - 1)]));
  return out;
}

ordered_json run_object(const std::string& folder) {
  TENON_CHECK(Usage, file_exists(fs::path(folder) / train::kMetricsFile), folder)
      << "contains no " << train::kMetricsFile << "; expected the folder of a training run";
  int64_t passed = 0, step = 0;
  std::map<std::string, std::vector<Point>> curves;
  std::map<std::string, double> totals;
  std::vector<nlohmann::json> drew;
  const std::vector<nlohmann::json> lines = train::read_metrics(folder, &passed);
  TENON_CHECK(Usage, !lines.empty() || passed == 0, folder)
      << train::kMetricsFile << " has " << counted(passed, "line") << ", none of which is metrics of a step";
  for (const nlohmann::json& line : lines) {
    const int64_t at = line.at("step");
    step = std::max(step, at);
    if (line.contains("samples") && line.at("samples").is_array()) drew.push_back(line);
    for (const auto& [key, value] : line.items())
      if (value.is_number() && key != "step" && key != "count") {
        curves[curve_name(line, key)].emplace_back(at, value.get<double>());
        if (key.ends_with("_seconds")) totals[key] += value.get<double>();
      }
  }
  if (passed > 0)
    spdlog::info("{}: skipped {} that {} incomplete or no metrics", escaped(folder), counted(passed, "line"),
                 passed == 1 ? "is" : "are");
  ordered_json series = ordered_json::object();
  for (const auto& [name, points] : curves) series[name] = thinned(points);
  return {{"name", escaped(folder)},
          {"step", step},
          {"totals", totals},
          {"series", series},
          {"samples", chosen_samples(folder, drew)}};
}

int run_plot(const PlotFlags& flags, const Common& common) {
  const std::string output =
      flags.output.empty() ? (fs::path(flags.runs.front()) / "plot.html").string() : flags.output;
  check_ending("--output", output, {".html", ".htm"});
  const Overwrite overwrite = flags.overwrite ? Overwrite::Yes : Overwrite::No;
  ordered_json runs = ordered_json::array();
  for (const std::string& folder : flags.runs) {
    std::error_code none;  // no such file yet
    TENON_CHECK(Usage, !fs::equivalent(output, fs::path(folder) / train::kMetricsFile, none), "--output")
        << "'" << shown(output) << "' holds the run's metrics, which a page must not replace";
    runs.push_back(run_object(folder));
  }
  const auto shows = [](const ordered_json& run) { return !run.at("series").empty() || !run.at("samples").empty(); };
  TENON_CHECK(Usage, std::ranges::any_of(runs, shows), flags.runs.front())
      << train::kMetricsFile << (runs.size() == 1 ? " holds" : " and those of the other runs hold")
      << " no values yet: there is nothing to draw";
  check_output(output, overwrite, kOverwriteHint);
  const std::string page = self_contained_page("plot", "runs", runs);
  write_file(output, std::as_bytes(std::span(page)), overwrite);
  if (common.json)
    std::cout << json_text(ordered_json{{"path", as_utf8(output)}}) << "\n";
  else
    std::cout << escaped(output) << "\n";
  return 0;
}

Action declare_plot(CLI::App& app, const Common& common) {
  const auto flags = std::make_shared<PlotFlags>();
  offer(app.add_option("RUN", flags->runs,
                       "folders of training runs, finished or in progress; several are drawn on one page"),
        {}, Beside::Files)
      ->required();
  app.add_option("-o,--output", flags->output, "HTML file to write (default: plot.html in the first folder)");
  app.add_flag("--overwrite", flags->overwrite, "replace an existing file");
  return [flags, &common] { return run_plot(*flags, common); };
}

const RegisterVerb kPlot{{"plot", "draw the curves of training runs on one HTML page", declare_plot}};

}  // namespace
}  // namespace tenon::cli
