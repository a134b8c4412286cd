// A skeleton that is not in the tree, and its body for the CPU: two self-registering objects are all that the planner
// and the null and CPU backends need.
#include <algorithm>

#include "tenon/backend/cpu/launches/launch_kernel.h"
#include "tenon/explain/parse_plan.h"
#include "tenon/kernels/skeleton.h"
#include "tenon/plan/one_launch.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/executable.h"
#include "tests/skeletons/harness.h"

namespace tenon {
namespace {

// Pointwise maths over a prime number of elements, used by no other test.
constexpr int64_t kPrime = 7919;

std::string legal_prime_map(const Form& form) {
  if (form.domain.numel() != kPrime) return "it is for " + std::to_string(kPrime) + " elements";
  const bool reduces = std::ranges::any_of(form.outputs, reduces_rows, &FormOutput::value);
  return reduces ? "a reduction needs its whole row resident" : "";
}

const RegisterSkeleton kPrimeMap(
    {.name = "prime_map", .holes = {"load"}, .serves = anchored_by<>, .preference = -1, .legal = legal_prime_map});

int runs = 0;

// One block on one thread.
class PrimeMapKernel : public cpu::LaunchKernel {
 public:
  PrimeMapKernel(std::shared_ptr<cpu::Engine> engine, const Launch& launch, Form form)
      : LaunchKernel(std::move(engine), launch, std::move(form)), tape_(compile_results({})) {
    seal();
  }
  std::string describe() const override { return "one block"; }

 private:
  void compute(std::byte*) override {
    ++runs;
    run_tape(*tape_, {0, tape_->rows(), 0, tape_->cols()}, 0);
  }
  std::unique_ptr<cpu::Tape> tape_;
};
const cpu::RegisterBody kPrimeMapBody("prime_map", &cpu::LaunchBodies::body<PrimeMapKernel>);

using NewSkeleton = launches::LaunchTest;

TEST_F(NewSkeleton, RunsItsLaunches) {
  const Expr x = input(g, "x", DType::F32, {kPrime}), y = input(g, "y", DType::F32, {kPrime});
  const int before = runs;
  expect(launch("prime_map", {{"z", silu(x) + y}}), {DType::F32});
  EXPECT_GT(runs, before);
  launch("map", {{"other", silu(input(g, "n", DType::F32, {kPrime + 1}))}});
}

TEST_F(NewSkeleton, ThePlannerAsksIt) {
  const Expr x = input(g, "x", DType::F32, {kPrime});
  const Plan plan = make_plan(std::array{Result{"z", silu(x) * 2.0}});
  ASSERT_EQ(plan.phase(Rate::Step)->launches.size(), 1u);
  EXPECT_EQ(plan.phase(Rate::Step)->launches[0].skeleton, "prime_map");
  EXPECT_EQ(print_plan(parse_plan(print_plan(plan))), print_plan(plan));
  for (const char* backend : {"null", "cpu"}) {
    Executable e(plan, make_backend(backend), HostWeights());
    e.set("x", std::vector<float>(kPrime, 1));
    const int before = runs;
    e.run_all();
    EXPECT_EQ(runs, before + (backend == std::string("cpu")));
  }
}

TEST_F(NewSkeleton, SaysWhyNot) {
  const Expr x = input(g, "x", DType::F32, {12});
  try {
    one_launch("prime_map", {store("z", x * 2.0)});
    FAIL() << "it took 12 elements";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("it is for 7919 elements"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tenon
