// tenon verify: does this build, on this machine, compute what it should?
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/cli/gates.h"
#include "apps/cli/parts.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/io/json.h"

namespace tenon::cli {
namespace {

struct VerifyFlags {
  PartFlags part;
  std::filesystem::path fixtures = TENON_FIXTURES;
  bool no_parity = false;
  std::string only;
  CLI::App* app = nullptr;

  bool fixtures_given() const { return app->count("--fixtures") > 0; }
};

struct Tally {
  int passed = 0, failed = 0, skipped = 0;
  nlohmann::ordered_json cases = nlohmann::ordered_json::array();

  void add(const GateCase& c, const Common& common) {
    static constexpr const char* kNames[] = {"passed", "failed", "skipped"};
    (c.verdict == Verdict::Passed ? passed : c.verdict == Verdict::Failed ? failed : skipped) += 1;
    nlohmann::ordered_json entry{{"name", c.name}, {"result", kNames[static_cast<int>(c.verdict)]}};
    if (c.verdict != Verdict::Skipped) entry.update({{"error", c.error}, {"tolerance", c.tolerance}});
    if (!c.note.empty()) entry["note"] = c.note;
    if (!c.quantized.empty()) entry["quantized"] = c.quantized;
    cases.push_back(entry);
    if (common.json || (common.quiet && c.verdict != Verdict::Failed)) return;
    const std::string& detail = c.note.empty() ? c.quantized : c.note;
    if (c.verdict == Verdict::Skipped)
      std::printf("%-7s  %s: %s\n", "skipped", c.name.c_str(), c.note.c_str());
    else
      std::printf("%-7s  %s: error %.2g, tolerance %.2g%s%s\n", kNames[static_cast<int>(c.verdict)], c.name.c_str(),
                  c.error, c.tolerance, detail.empty() ? "" : "; ", detail.c_str());
    std::fflush(stdout);
  }
};

int run(const VerifyFlags& flags, const Common& common) {
  std::error_code ignored;
  TENON_CHECK(Usage, !flags.fixtures_given() || std::filesystem::exists(flags.fixtures / "parity.json", ignored),
              "--fixtures")
      << "there is no " << (flags.fixtures / "parity.json").string();
  const auto backend = flags.part.computing_backend(common);
  const auto model = open_parts(flags.part.spec);
  const std::vector<std::string> parts = model->parts_named(flags.part.part);  // refused before any case runs
  Tally tally;
  const OnCase done = [&](const GateCase& c) { tally.add(c, common); };
  if (!flags.no_parity && flags.only.empty()) parity_gates(flags.fixtures, backend, done);
  int checked = 0;
  for (const std::string& part : parts) {
    check_stop();
    const Plan plan = model->plan(part, flags.part.request, flags.part.networks(*backend, *model));
    const std::shared_ptr<const WeightSource> weights = model->weights(part);
    checked += oracle_gates(part, plan, flags.part.weights(backend, weights), *weights, flags.only, done);
  }
  TENON_CHECK(Usage, checked > 0 || flags.only.empty(), "--only") << "no launch matches '" << flags.only << "'";
  if (common.json)
    std::cout << json_text({{"passed", tally.passed},
                            {"failed", tally.failed},
                            {"skipped", tally.skipped},
                            {"cases", tally.cases}},
                           2)
              << "\n";
  else
    std::printf("%d passed, %d failed, %d skipped\n", tally.passed, tally.failed, tally.skipped);
  std::fflush(stdout);
  return tally.failed ? static_cast<int>(ErrorKind::Numeric) : 0;
}

Action declare_verify(CLI::App& app, const Common& common) {
  const auto flags = std::make_shared<VerifyFlags>();
  flags->app = &app;
  flags->part.declare(app, "all");
  app.add_option("--fixtures", flags->fixtures, "folder with recorded results of the reference implementations")
      ->capture_default_str();
  app.add_flag("--no-parity", flags->no_parity,
               "check only launches against the oracle, not networks against recorded results");
  app.add_option(
      "--only", flags->only,
      "check only launches whose names contain this or match a pattern such as '*.attn1.*', and no recorded results");
  return [flags, &common] { return run(*flags, common); };
}

const RegisterVerb kVerify{
    {"verify", "check every launch against the fp64 oracle, and networks against recorded results", declare_verify}};

}  // namespace
}  // namespace tenon::cli
