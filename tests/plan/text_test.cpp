// Plans as text: what is refused, and differences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/core/error.h"
#include "tenon/explain/parse_plan.h"
#include "tenon/explain/plan_diff.h"
#include "tenon/expr/ops.h"
#include "tenon/plan/plan.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

TEST(PlanText, ErrorsNameTheLine) {
  EXPECT_THROW(parse_plan(""), Error);
  try {
    parse_plan("plan \"p\" arena=0 precision \"operands\"\nbuffer \"x\" f32 [2,2] sideways step offset=0\n");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("[plan] line 2"));
  }
  const std::string text =
      "plan \"p\" arena=0 precision \"operands\"\nphase step\nlaunch SKELETON \"l\"\n"
      "  %0 = input<\"x\",f32,[2,2],3>()\n"
      "  %1 = sum<0>(%0)\n  return %1\n  into \"y\"\nend\n";
  for (const auto& [skeleton, why] : {std::pair{"map", "a reduction needs its whole row"},
                                      {"gemm", "does not support a launch without an anchor"},
                                      {"nobody", "no skeleton 'nobody'"}}) {
    std::string of = text;
    of.replace(of.find("SKELETON"), 8, skeleton);
    try {
      parse_plan(of);
      FAIL() << skeleton;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Usage);
      EXPECT_THAT(e.what(), ::testing::AllOf(HasSubstr("[plan] line "), HasSubstr(why)));
    }
  }
}

// Text from elsewhere cannot make launches read or write outside their memory.
TEST(PlanText, BuffersMustHoldWhatLaunchesUse) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {64, 64});
  const std::string text = print_plan(make_plan(std::array{Result{"z", linear(x, x) + sum(tanh(x))}}));
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& why) {
    std::string changed = text;
    ASSERT_NE(text.find(from), text.npos) << text;
    try {
      parse_plan(changed.replace(text.find(from), from.size(), to));
      FAIL() << to;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Usage);
      EXPECT_THAT(e.what(), HasSubstr(why));
    }
  };
  const std::string z = "buffer \"z\" f32 [64,64] output";
  refused("arena=", "arena=1", "[plan] expected arena=");
  refused("offset=", "offset=10995116", "[plan] expected buffer \"x\" offset=");
  refused("offset=", "offset=1", ", as the planner has it, found offset=1");
  refused(z, "buffer \"z\" f32 [1,1] output", "no buffer of this name and type is in the plan");
  refused(z, "buffer \"z\" f64 [64,64] output", "[plan] launch '");
  refused(z, "buffer \"y\" f32 [64,64] output", "uses 'z' as f32 [64,64], but no buffer");
  refused(z, "buffer \"z\" f32 [4611686018427387904] output", "is not a whole number");
  refused(z, "buffer \"z\" f32 [1073741824,1073741824] output", "a buffer of more than 2^53 elements");
  refused(z, "buffer \"x\" f32 [64,64] output", "two of its inputs, results and states are named 'x'");
  refused(z, "buffer \"%z\" f32 [64,64] output", "names that begin with '%'");
  refused("phase", text.substr(0, text.find('\n') + 1) + "phase", "expected 'plan' first, and only once");
}

TEST(PlanText, DiffShowsWhatChanged) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 4});
  const Plan a = make_plan(std::array{Result{"y", silu(x)}}), b = make_plan(std::array{Result{"y", gelu(x)}});
  EXPECT_THAT(diff_plans(a, b), HasSubstr("- "));
  EXPECT_THAT(diff_plans(a, b), HasSubstr("gelu"));
  EXPECT_EQ(diff_plans(a, a), "");
}

}  // namespace
}  // namespace tenon
