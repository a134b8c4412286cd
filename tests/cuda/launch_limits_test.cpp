// What no GPU can launch or address is refused when a launch is prepared, with a message that says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/runtime/executable.h"
#include "tests/cuda/emulator.h"

namespace tenon {
namespace {

using testing::HasSubstr;

// The message when a plan of `y` is prepared for the emulated GPU.
std::string refusal(const Expr& y) {
  PlanOptions options;
  options.outside = true;  // no memory is needed
  try {
    const std::vector<Result> results{{"y", y}};
    Plan plan = make_plan(results, options);
    std::map<std::string, void*> memory;
    for (const Buffer& b : plan.buffers) memory[b.name] = reinterpret_cast<void*>(4096);
    Executable(std::move(plan), cuda::make_cuda_backend(std::make_shared<cuda::test::Emulator>()), HostWeights(),
               memory);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing";
}

TEST(LaunchLimits, OffsetsAreInts) {
  Graph g;
  EXPECT_THAT(refusal(input(g, "x", DType::BF16, {65536, 40000}) * 2.0), HasSubstr("2^31 elements"));
  EXPECT_THAT(refusal(input(g, "z", DType::BF16, {65536, 30000}) * 2.0), HasSubstr("nothing"));
}
TEST(LaunchLimits, Grids) {
  Graph g;
  const Expr a = input(g, "a", DType::F32, {70000, 2, 8}), b = input(g, "b", DType::F32, {70000, 2, 8});
  EXPECT_THAT(refusal(linear(a, b)), HasSubstr("a GPU takes at most 65535"));
}
TEST(LaunchLimits, LongRows) {
  Graph g;
  EXPECT_THAT(refusal(sum(input(g, "x", DType::F32, {2, 300000}))), HasSubstr("reduce it in two steps"));
}
TEST(LaunchLimits, Arguments) {
  Graph g;
  std::vector<Expr> parts;
  for (int i = 0; i < 1700; ++i) parts.push_back(input(g, "x" + std::to_string(i), DType::F32, {2, 8}));
  EXPECT_THAT(refusal(concat(parts, 0)), HasSubstr("too many tensors"));
}

}  // namespace
}  // namespace tenon
