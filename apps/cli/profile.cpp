// tenon profile: shows where a running network spends its time.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/output_names.h"
#include "apps/cli/parts.h"
#include "apps/cli/sample_inputs.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"
#include "tenon/explain/profile.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon::cli {
namespace {
using nlohmann::ordered_json;

struct ProfileFlags {
  PartFlags part;
  std::string trace;
  int runs = 10, top = 15;
  bool overwrite = false;
};

constexpr int kWarmUps = 3;  // a device runs the first, records the second, and replays it in the third

// The host times launches one by one, run in order.
MeasuredStep timed_run(Executable& executable, Rate rate) {
  executable.run(rate);
  MeasuredStep out;
  for (const LaunchTime& t : executable.times())
    if (t.rate == rate) out.launches.push_back({.copy = false, .begin = t.begin, .end = t.begin + t.seconds});
  return out;
}

std::vector<MeasuredStep> measure(Executable& executable, Trace* trace, const Explanation& e, int runs) {
  const Rate rate = e.rate;
  for (int i = 0; i < kWarmUps; ++i) executable.run(rate);
  std::vector<MeasuredStep> out;
  if (!trace) executable.time_launches(true);
  for (int i = 0; i < runs; ++i) {
    check_stop();
    if (!trace) {
      out.push_back(timed_run(executable, rate));
      continue;
    }
    trace->take();
    executable.run(rate);
    out.push_back(step_of(trace->take(), e));
  }
  return out;
}

// `peak`: the device's, as measured so far by parts before this one.
Profile profile_part(const ModelParts& model, const std::string& part, const ProfileFlags& flags,
                     const std::shared_ptr<Backend>& backend, Roofline& peak) {
  const NetworkOptions options = flags.part.networks(*backend, model);
  const Plan plan = model.plan(part, flags.part.request, options);
  const PlanKernels made(plan, *flags.part.weights(backend, nullptr));
  Explanation e = explain(plan, made.memory, 0, {}, kernels_of(made));
  e.model = model.name();
  e.part = part;
  e.device = backend->describe();
  measure_roofline(plan, backend, peak);
  e.roofline = peak;
  const std::unique_ptr<Trace> trace = backend->trace();  // before anything is recorded
  Executable executable(plan, flags.part.weights(backend, model.weights(part)));
  const std::vector<std::string> how = executable.describe(e.rate);
  size_t at = 0;
  for (ExplainedLaunch& l : e.launches)
    if (l.rate == e.rate) l.how = how.at(at++);
  set_sample_inputs(executable);
  executable.run_all();
  return make_profile(e, measure(executable, trace.get(), e, flags.runs));
}

ordered_json time_json(const ProfiledTime& t, double step) {
  ordered_json out{{"name", t.name}, {"ms", t.seconds * 1e3}, {"share", step > 0 ? t.seconds / step : 0}};
  out["launches"] = t.launches;
  out["kernels"] = t.kernels;
  if (t.roofline) out["roofline_share"] = *t.roofline;
  return out;
}

ordered_json profile_json(const Profile& p) {
  ordered_json out{
      {"model", p.model}, {"part", p.part}, {"device", p.device}, {"ms", p.seconds * 1e3}, {"runs", p.runs}};
  for (const ProfiledTime& t : p.classes) out["classes"].push_back(time_json(t, p.seconds));
  for (const ProfiledTime& t : p.layers) out["layers"].push_back(time_json(t, p.seconds));
  for (const ProfiledTime& t : p.times) {
    ordered_json one = time_json(t, p.seconds);
    one["class"] = t.kind;
    one["layer"] = t.layer;
    one["begin_ms"] = t.begin * 1e3;
    one["end_ms"] = t.end * 1e3;
    if (!t.how.empty()) one["how"] = t.how;
    out["times"].push_back(std::move(one));
  }
  return out;
}

// Chrome's trace format: complete events in microseconds, one process per network.
ordered_json trace_json(const std::vector<Profile>& profiles) {
  ordered_json events = ordered_json::array();
  for (size_t i = 0; i < profiles.size(); ++i) {
    const Profile& p = profiles[i];
    events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", i}, {"args", {{"name", p.model + " " + p.part}}}});
    for (const ProfiledTime& t : p.times)
      events.push_back({{"name", t.name},
                        {"cat", t.kind},
                        {"ph", "X"},
                        {"pid", i},
                        {"tid", 0},
                        {"ts", t.begin * 1e6},
                        {"dur", (t.end - t.begin) * 1e6},
                        {"args", {{"layer", t.layer}, {"how", t.how}}}});
  }
  return {{"traceEvents", events}, {"displayTimeUnit", "ms"}};
}

int run(const ProfileFlags& flags, const Common& common) {
  const Overwrite overwrite = flags.overwrite ? Overwrite::Yes : Overwrite::No;
  if (!flags.trace.empty()) {
    check_ending("--trace", flags.trace, {".json"});
    check_output(flags.trace, overwrite, kOverwriteHint);
  }
  const auto backend = flags.part.computing_backend(common);
  const auto model = open_parts(flags.part.spec);
  std::vector<Profile> profiles;
  Roofline peak;
  for (const std::string& part : model->parts_named(flags.part.part))
    profiles.push_back(profile_part(*model, part, flags, backend, peak));
  ordered_json all = ordered_json::array();
  for (const Profile& p : profiles) {
    if (common.json)
      all.push_back(profile_json(p));
    else
      std::cout << profile_text(p, static_cast<size_t>(flags.top)) << "\n";
  }
  if (common.json) std::cout << json_text(all.size() == 1 ? all[0] : all, 2) << "\n";
  if (flags.trace.empty()) return 0;
  const std::string text = json_text(trace_json(profiles)) + "\n";
  write_file(flags.trace, std::as_bytes(std::span(text)), overwrite);
  if (!common.json) std::cout << escaped(flags.trace) << "\n";
  return 0;
}

Action declare_profile(CLI::App& app, const Common& common) {
  const auto flags = std::make_shared<ProfileFlags>();
  flags->part.declare(app, "");
  app.add_option("--runs", flags->runs, "number of timed runs; the median is reported")
      ->transform(whole_number())
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--top", flags->top, "rows to print in the tables of layers and launches; 0: no tables")
      ->transform(whole_number())
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  app.add_option("--trace", flags->trace, "write a timeline to this file, for chrome://tracing or ui.perfetto.dev");
  app.add_flag("--overwrite", flags->overwrite, "replace an existing file");
  return [flags, &common] { return run(*flags, common); };
}

const RegisterVerb kProfile{
    {"profile", "show where the time of a running network goes, by launch, layer and class", declare_profile}};

}  // namespace
}  // namespace tenon::cli
