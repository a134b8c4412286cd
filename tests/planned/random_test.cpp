// Random programs: each is planned in several ways; every plan must have the program's semantics, and give its results
// when run. A failing program is reduced and printed. To repeat it: TENON_RANDOM_SEED=<the printed seed> test_planned
// --gtest_filter='RandomPrograms.OfASeed'. More programs: TENON_RANDOM_PROGRAMS=<how many>, from another first seed:
// TENON_RANDOM_FIRST=<seed>.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <random>
#include <set>

#include "tenon/expr/node_type.h"
#include "tenon/kernels/form.h"
#include "tenon/kernels/view_facts.h"
#include "tests/planned/check.h"
#include "tests/planned/shrink.h"

namespace tenon::planned {
namespace {

constexpr uint32_t kFirstSeed = 20261122;
constexpr int kParts = 20;  // tests that run in parallel

const int kPrograms = sanitized() ? 100 : 2000;
const int kProgramsOnSlowDevices = sanitized() ? 10 : 40;

uint32_t number_from(const char* variable, uint32_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? static_cast<uint32_t>(std::strtoul(text, nullptr, 10)) : otherwise;
}

int programs() {
  return static_cast<int>(number_from("TENON_RANDOM_PROGRAMS", slow_devices() ? kProgramsOnSlowDevices : kPrograms));
}

// A target whose kernels compute nothing in prologues.
bool reads_views(const Form& form, size_t hole) { return is_view_chain(form.holes[hole]); }

PlanOptions some_options(std::mt19937& random) {
  const auto coin = [&] { return random() % 2 == 0; };
  PlanOptions o;
  o.fusion = random() % 8 != 0;
  o.hoist = coin();
  o.merge_siblings = coin();
  o.outside = coin();
  o.anchors_alone = random() % 4 == 0;
  o.fold_scales = coin();
  // As if tensors were large, a launch expensive, or fusion valuable: storing may cost time, but must not change
  // values.
  constexpr int64_t kMuch = int64_t{1} << 40;
  if (coin()) o.target.launch_bytes = std::array<int64_t, 3>{0, kMuch, -kMuch}[random() % 3];
  if (coin()) o.target.reads = reads_views;
  return o;
}

PlanOptions exact_options() {
  PlanOptions o;
  o.fold_scales = false;
  return o;
}

PlanOptions unfused_options() {
  PlanOptions o;
  o.fusion = false;
  return o;
}

// CPUs alone have i8 in blocks, and they join no branches.
bool in_i8_blocks(uint32_t seed) { return !slow_devices() && seed % 25 == 7; }

// As a device whose kernels run every anchor, and write rows of states themselves.
PlanOptions capable_options(PlanOptions o) {
  o.target.runs = [](const Expr&) { return true; };
  o.target.writes = [](const Form&) { return true; };
  return o;
}

// A named check, so that a reduced program must fail in the same way.
struct Check {
  std::string name;
  std::function<Finding(const Program&)> run;
};

std::vector<Check> checks_of(uint32_t seed) {
  std::mt19937 random(seed ^ 0x5bd1e995u);
  std::vector<Check> out;
  const auto meaning = [&](const PlanOptions& o) {
    out.push_back({"meaning, " + text_of(o), [o](const Program& p) { return check_meaning(p, o); }});
  };
  const auto runs = [&](PlanOptions o, bool for_device = false) {
    const Device& device = devices()[random() % devices().size()];
    if (for_device) o.target = device.backend->target();
    out.push_back({"run on " + device.name + ", " + text_of(o),
                   [o, &device](const Program& p) { return check_run(p, o, device); }});
  };
  const PlanOptions some = some_options(random);
  if (slow_devices()) {
    runs(seed % 4 ? PlanOptions() : some, seed % 4 > 1);
    return out;
  }
  for (const PlanOptions& o : {PlanOptions(), exact_options(), unfused_options(), some}) meaning(o);
  if (!in_i8_blocks(seed)) meaning(capable_options(some));
  runs(PlanOptions());
  if (seed % 2 == 0) runs(some);
  if (seed % 4 == 1) runs(unfused_options());
  return out;
}

ProgramSize size_of(uint32_t seed) {
  if (slow_devices()) return {5, 3000};
  return seed % 150 == 0 ? ProgramSize{4, 80000} : ProgramSize{};  // some with more than a launch computes for itself
}

Program program_of(uint32_t seed) {
  const Program p = random_program(seed, size_of(seed));
  return in_i8_blocks(seed) ? with_precision(p, {.rule = PrecisionPolicy::Rule::I8Blocks}) : p;
}

void check(uint32_t seed) {
  const Program program = program_of(seed);
  for (const Check& c : checks_of(seed)) {
    const Finding found = c.run(program);
    if (!found) continue;
    const auto begin = std::chrono::steady_clock::now();
    const Program small = shrink(program, [&](const Program& p) {
      const bool time_left = std::chrono::steady_clock::now() - begin < std::chrono::seconds(60);
      return time_left && static_cast<bool>(c.run(p));
    });
    ADD_FAILURE() << "TENON_RANDOM_SEED=" << seed << " (" << c.name << ")\n"
                  << found.what << "\n\nThe program made smaller:\n"
                  << small.text() << "\n"
                  << c.run(small).what;
    return;
  }
}

class RandomProgramParts : public testing::TestWithParam<int> {};

TEST_P(RandomProgramParts, MeanAndRunAsWritten) {
  const uint32_t first = number_from("TENON_RANDOM_FIRST", kFirstSeed);
  for (int i = GetParam(); i < programs(); i += kParts) check(first + static_cast<uint32_t>(i));
}

INSTANTIATE_TEST_SUITE_P(Random, RandomProgramParts, testing::Range(0, kParts));

// A new view must be added to Layers::view too.
TEST(RandomPrograms, HaveEveryView) {
  if (sanitized()) GTEST_SKIP() << "too few programs";
  std::set<std::string_view> missing;
  for (const NodeType* type : node_types())
    if (type->family == Family::View) missing.insert(type->name);
  const int count = slow_devices() ? kProgramsOnSlowDevices : kPrograms;
  for (uint32_t seed = kFirstSeed; seed < kFirstSeed + static_cast<uint32_t>(count); ++seed) {
    const Program program = program_of(seed);
    for (const Expr& e : topological(program.roots())) missing.erase(e->name());
  }
  EXPECT_THAT(missing, testing::IsEmpty());
}

TEST(RandomPrograms, OfASeed) {
  if (!std::getenv("TENON_RANDOM_SEED")) GTEST_SKIP() << "TENON_RANDOM_SEED is not set";
  const uint32_t seed = number_from("TENON_RANDOM_SEED", 0);
  std::puts(program_of(seed).text().c_str());
  check(seed);
}

}  // namespace
}  // namespace tenon::planned
