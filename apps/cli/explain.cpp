// tenon explain: what went into which kernel, and why the rest stayed out.
#include <algorithm>
#include <fstream>
#include <iostream>

#include "cancel.h"
#include "explain_json.h"
#include "parts.h"
#include "sample_inputs.h"
#include "tenon/core/error.h"
#include "tenon/io/files.h"

namespace tenon::cli {
namespace {

struct ExplainFlags {
  PartFlags part;
  std::string html;
  bool time = false, plan = false, overwrite = false;
};

// The time of each launch from the last of three runs.
void run_timed(Executable& executable) {
  set_sample_inputs(executable);
  executable.run_all();
  executable.time_launches(true);
  for (int i = 0; i < 2; ++i) executable.run_all();
}

Explanation explain_part(const Model& model, const std::string& part, const ExplainFlags& flags,
                         const std::shared_ptr<Backend>& backend) {
  const Plan plan = plan_part(model, part, flags.part.shape(model), flags.part.networks(*backend));
  const MemoryPlan memory = plan_memory(plan, *backend);
  Explanation out;
  if (flags.time) {
    Executable executable(plan, backend, *weights_of_part(model, part));
    executable.stop_when(stop_asked);
    run_timed(executable);
    out = explain(plan, memory, &executable);
  } else {
    out = explain(plan, memory);
  }
  out.model = model.name();
  out.part = part;
  out.device = backend->describe();
  return out;
}

void write_page(const ExplainFlags& flags, const std::vector<Explanation>& networks) {
  const std::string page = explanation_html(networks);
  write_file(flags.html, std::as_bytes(std::span(page)), flags.overwrite ? Overwrite::Yes : Overwrite::No);
}

void print(const std::vector<Explanation>& networks, bool json) {
  if (!json) {
    for (const Explanation& e : networks) std::cout << explanation_text(e) << "\n";
  } else if (networks.size() == 1) {
    std::cout << explanation_json(networks[0]) << "\n";
  } else {
    nlohmann::ordered_json parts = nlohmann::ordered_json::object();
    for (const Explanation& e : networks) parts[e.part] = explanation_object(e);
    std::cout << nlohmann::ordered_json{{"parts", parts}}.dump(2) << "\n";
  }
}

int run(const ExplainFlags& flags, const Common& common) {
  TENON_CHECK(Usage, !flags.plan || !common.json, "--plan") << "is a text of its own; leave --json out";
  const auto backend = common.backend();
  if (!flags.html.empty()) check_output(flags.html, flags.overwrite ? Overwrite::Yes : Overwrite::No);
  const auto model = Model::open(flags.part.spec);
  std::vector<Explanation> networks;
  for (const std::string& part : flags.part.parts()) {
    throw_if_stopped();
    if (flags.plan)
      std::cout << print_plan(plan_part(*model, part, flags.part.shape(*model), flags.part.networks(*backend)));
    else
      networks.push_back(explain_part(*model, part, flags, backend));
  }
  if (flags.plan) return 0;
  if (flags.html.empty()) {
    print(networks, common.json);
    return 0;
  }
  write_page(flags, networks);
  if (common.json)
    print(networks, true);
  else
    std::cout << flags.html << "\n";
  return 0;
}

Action declare(CLI::App& app, const Common& common) {
  const auto flags = std::make_shared<ExplainFlags>();
  flags->part.declare(app, "unet");
  CLI::Option* html =
      app.add_option("--html", flags->html, "write one self-contained page there (with --part all: every network)");
  CLI::Option* time = app.add_flag("--time", flags->time, "run with made-up inputs and show the time of every launch");
  app.add_flag("--plan", flags->plan, "print the plan itself, in the form that parses back")
      ->excludes(html)
      ->excludes(time);
  app.add_flag("--overwrite", flags->overwrite, "replace an existing page");
  return [flags, &common] { return run(*flags, common); };
}

const RegisterVerb kExplain{{"explain", "what went into which kernel, and why the rest stayed out", declare}};

}  // namespace
}  // namespace tenon::cli
