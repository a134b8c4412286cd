// tenon explain: shows what went into which kernel, and why the rest stayed out.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/cli/compare.h"
#include "apps/cli/explain_json.h"
#include "apps/cli/output_names.h"
#include "apps/cli/parts.h"
#include "apps/cli/sample_inputs.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon::cli {
namespace {

struct ExplainFlags {
  PartFlags part;
  std::string html, sort;
  LaunchChoice choice;
  bool time = false, plan = false, compare = false, overwrite = false;
};

constexpr int kTimedRuns = 3;

// Median time of each launch over a few runs after a warm-up, and how it ran.
Measurements run_timed(Executable& executable) {
  set_sample_inputs(executable);
  executable.run_all();
  executable.time_launches(true);
  std::map<std::string, std::vector<double>> seconds;
  for (int i = 0; i < kTimedRuns; ++i) {
    executable.run_all();
    for (const LaunchTime& t : executable.times()) seconds[t.name].push_back(t.seconds);
  }
  Measurements out;
  for (auto& [name, runs] : seconds) {
    std::sort(runs.begin(), runs.end());
    out[name].seconds = runs[runs.size() / 2];
  }
  for (const Phase& p : executable.plan().phases) {
    const std::vector<std::string> lines = executable.describe(p.rate);
    for (size_t i = 0; i < p.launches.size(); ++i) out[p.launches[i].name].how = lines[i];
  }
  return out;
}

// `peak`: the device's, as measured so far by timed parts before this one.
Explanation explain_part(const ModelParts& model, const std::string& part, const ExplainFlags& flags,
                         const std::shared_ptr<Backend>& backend, Roofline& peak) {
  const PartRequest& request = flags.part.request;
  NetworkOptions options = flags.part.networks(*backend, model);
  const Plan plan = model.plan(part, request, options);
  Measurements measured;
  if (!flags.time) {
    dump_plan(plan);
  } else {  // also dumps it
    Executable executable(plan, flags.part.weights(backend, model.weights(part)));
    measured = run_timed(executable);
  }
  options.fusion = false;
  check_stop();
  const Plan apart = model.plan(part, request, options);
  const std::shared_ptr<WeightStore> none = flags.part.weights(backend, nullptr);
  const PlanKernels made(plan, *none);
  check_offload(plan.name, made.memory, none->offload());
  Explanation out =
      explain(plan, made.memory, bytes_moved(apart, apart.phases.back().rate), measured, kernels_of(made));
  out.model = model.name();
  out.part = part;
  out.device = backend->describe();
  if (flags.time) {
    measure_roofline(plan, backend, peak);
    out.roofline = peak;
  }
  keep(out, flags.choice);
  return out;
}

void write_page(const ExplainFlags& flags, const std::vector<Explanation>& networks) {
  const std::string page = explanation_html(networks);
  write_file(flags.html, std::as_bytes(std::span(page)), flags.overwrite ? Overwrite::Yes : Overwrite::No);
}

void print(const std::vector<Explanation>& networks, bool as_json) {
  if (!as_json) {
    for (const Explanation& e : networks)
      if (!e.launches.empty()) std::cout << explanation_text(e) << "\n";
  } else if (networks.size() == 1) {
    std::cout << explanation_json(networks[0]) << "\n";
  } else {
    nlohmann::ordered_json parts = nlohmann::ordered_json::object();
    for (const Explanation& e : networks) parts[e.part] = explanation_object(e);
    std::cout << json_text({{"parts", parts}}, 2) << "\n";
  }
}

int run_compare(const ExplainFlags& flags, const Common& common) {
  TENON_CHECK(Usage, !fusion_is_off(flags.part.no_fusion), "--compare")
      << "compares plans with and without fusion: remove --no-fusion (or unset TENON_NO_FUSION)";
  const auto backend = flags.part.backend(common);
  const auto model = open_parts(flags.part.spec);
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const std::string& part : model->parts_named(flags.part.part)) {
    check_stop();
    const Comparison c = compare(*model, part, flags.part.request, flags.part.networks(*backend, *model));
    if (common.json)
      all.push_back(comparison_json(c));
    else
      std::cout << comparison_text(c) << "\n";
  }
  if (common.json) std::cout << json_text(all.size() == 1 ? all[0] : all, 2) << "\n";
  return 0;
}

LaunchOrder order_of(const ExplainFlags& flags) {
  TENON_CHECK(Usage, flags.sort != "time" || flags.time, "--sort") << "time needs --time";
  return flags.sort == "time" ? LaunchOrder::Time : flags.sort == "bytes" ? LaunchOrder::Bytes : LaunchOrder::Plan;
}

int run(ExplainFlags flags, const Common& common) {
  flags.choice.order = order_of(flags);
  TENON_CHECK(Usage, !flags.plan || !common.json, "--plan") << "prints text only: remove --json";
  if (!flags.html.empty()) check_ending("--html", flags.html, {".html", ".htm"});
  const auto backend = flags.time ? flags.part.computing_backend(common) : flags.part.backend(common);
  if (!flags.html.empty()) check_output(flags.html, flags.overwrite ? Overwrite::Yes : Overwrite::No, kOverwriteHint);
  const auto model = open_parts(flags.part.spec);
  std::vector<Explanation> networks;
  Roofline peak;
  for (const std::string& part : model->parts_named(flags.part.part)) {
    check_stop();
    if (!flags.plan) {
      networks.push_back(explain_part(*model, part, flags, backend, peak));
      continue;
    }
    const Plan plan = model->plan(part, flags.part.request, flags.part.networks(*backend, *model));
    dump_plan(plan);
    std::cout << print_plan(plan);
  }
  check_stop();
  if (flags.plan) return 0;
  if (!flags.choice.only.empty()) {
    const bool any = std::ranges::any_of(networks, [](const Explanation& e) { return !e.launches.empty(); });
    TENON_CHECK(Usage, any, "--only") << "no launch matches '" << flags.choice.only << "'";
  }
  if (flags.html.empty()) {
    print(networks, common.json);
    return 0;
  }
  write_page(flags, networks);
  if (common.json)
    print(networks, true);
  else
    std::cout << escaped(flags.html) << "\n";
  return 0;
}

Action declare_explain(CLI::App& app, const Common& common) {
  const auto flags = std::make_shared<ExplainFlags>();
  flags->part.declare(app, "");
  CLI::Option* html = app.add_option(
      "--html", flags->html, "write a self-contained HTML page to this file (with --part all: of every network)");
  CLI::Option* time = app.add_flag("--time", flags->time,
                                   "run with made-up inputs and show each launch's time (median of three runs), GB/s, "
                                   "FLOP per byte and share of the roofline");
  CLI::Option* some =
      app.add_option("--only", flags->choice.only,
                     "show only launches whose names contain this or match a pattern such as '*.attn1.*'");
  CLI::Option* sort =
      only(app.add_option("--sort", flags->sort, "list the costliest launches first, by time (needs --time) or bytes"),
           {"time", "bytes"});
  CLI::Option* one_block = app.add_flag(
      "--compare", flags->compare,
      "show one block three ways: node by node, as a compiler around library calls runs it, and as Tenon's launches");
  html->excludes(some)->excludes(sort);  // the page filters by itself, and shows the memory of all launches
  one_block->excludes(html)->excludes(time)->excludes(some)->excludes(sort);
  app.add_flag("--plan", flags->plan, "print the plan in the text form that can be parsed back")
      ->excludes(html)
      ->excludes(time)
      ->excludes(some)
      ->excludes(sort)
      ->excludes(one_block);
  app.add_flag("--overwrite", flags->overwrite, "replace an existing file");
  return [flags, &common] { return flags->compare ? run_compare(*flags, common) : run(*flags, common); };
}

const RegisterVerb kExplain{{"explain",
                             "show a network's plan: what each kernel computes, and why the rest was not fused into it",
                             declare_explain}};

}  // namespace
}  // namespace tenon::cli
