// cuDNN's plans for a GPU that is not present: by the fake library, and by the real one if installed.
#include "tenon/backend/cuda/libraries/cudnn_check.h"

#include <gmock/gmock.h>

#include "tests/cuda/fake_cudnn/fake_cudnn.h"
#include "tests/cuda/library_launches.h"

namespace tenon::cuda {
namespace {
using launches::only;
using testing::HasSubstr;

DeviceFacts h200() {
  DeviceFacts facts;
  facts.name = "NVIDIA H200";
  facts.arch = "sm_90a";
  facts.multiprocessors = 132;
  facts.shared_bytes = 227 * 1024;
  facts.memory_bytes = int64_t{139} << 30;
  return facts;
}
DeviceFacts l4() {
  DeviceFacts facts = h200();
  facts.name = "NVIDIA L4";
  facts.arch = "sm_89";
  facts.multiprocessors = 58;
  facts.shared_bytes = 99 * 1024;
  facts.memory_bytes = int64_t{22} << 30;
  return facts;
}

DnnConv conv(int64_t channels, int64_t outputs, int64_t stride, bool bias) {
  DnnConv c;
  c.batch = 2;
  c.height = c.width = 64;
  c.out_height = c.out_width = 64 / stride;
  c.channels = channels;
  c.outputs = outputs;
  c.kernel_h = c.kernel_w = 3;
  c.stride = stride;
  c.pad_top = c.pad_left = c.pad_bottom = c.pad_right = 1;
  c.bias = bias;
  return c;
}

// Heads side by side in rows of tokens.
DnnAttention heads(int64_t depth, int64_t keys) {
  DnnAttention a;
  a.batch = 2;
  a.heads = a.kv_heads = 8;
  a.queries = 4096;
  a.keys = keys;
  a.depth = depth;
  a.scale = 0.125F;
  a.q = a.o = {4096 * 8 * depth, depth, 8 * depth};
  a.k = a.v = {keys * 16 * depth, depth, 16 * depth};  // k and v in one tensor
  return a;
}

TEST(CudnnCheckTest, VerdictsOfDistinctProblems) {
  const SearchSettings fake = only(FAKE_CUDNN_FOLDER);
  FakeCudnnState& state =
      *load_library(Library::Cudnn, fake).library->function<FakeCudnnState*()>("fake_cudnn_state")();
  state = {};
  {
    CudnnCheck check(fake, h200());
    EXPECT_TRUE(state.described_device);
    EXPECT_EQ(check.planned().library, "cudnn 9.19.0");
    check.plan(conv(320, 320, 1, false));
    check.plan(conv(320, 320, 1, false));
    check.plan(conv(320, 320, 1, true));
    state.fail_plan_of = kPlain;
    state.fail_plan = 3000;
    check.plan(conv(320, 640, 1, false));
    state.offers = false;
    check.plan(conv(640, 640, 1, false));
    ASSERT_EQ(check.planned().calls.size(), 4U);
    EXPECT_EQ(check.planned().calls[0].problem, "conv2d f16 2x64x64x320 -> 64x64x320 by 3x3x1 pad 1 1 1 1");
    EXPECT_EQ(check.planned().calls[0].engine, "engine 4");
    EXPECT_EQ(check.planned().calls[2].engine, "engine 5 knobs 2:16");
    EXPECT_EQ(check.planned().calls[3].engine, "");
    EXPECT_EQ(check.planned().calls[3].why_not, "no deterministic engine");
    EXPECT_EQ(state.handles, 0);
  }
  EXPECT_EQ(state.objects, 0);
  EXPECT_THROW(CudnnCheck(fake, l4()), Error) << "a device that the library does not know";
}

// An engine that compiles but cannot be loaded without a GPU counts as a plan; one that fails otherwise does not.
TEST(CudnnCheckTest, CompiledEnginesNeedNotBeLoaded) {
  const SearchSettings fake = only(FAKE_CUDNN_FOLDER);
  FakeCudnnState& state =
      *load_library(Library::Cudnn, fake).library->function<FakeCudnnState*()>("fake_cudnn_state")();
  state = {};
  const auto api = std::make_shared<const CudnnApi>(fake);
  std::vector<CudnnConfig> configs = CudnnPlanner(api, h200()).configs(heads(40, 77));
  ASSERT_EQ(configs.size(), 1U);
  EXPECT_TRUE(configs[0].compiles);
  state.fail_plan_of = kCompiled;
  state.fail_plan = kCudnnDriverFailed;
  EXPECT_FALSE(CudnnPlan(configs[0]).loaded());
  state.fail_plan = 3000;
  try {
    const CudnnPlan plan(configs[0]);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("cannot prepare engine 9: CUDNN_STATUS_NOT_SUPPORTED"));
  }
}

TEST(CudnnCheckTest, TheRealLibraryHasPlans) {
  std::unique_ptr<CudnnCheck> check;
  for (const DeviceFacts& facts : {h200(), l4()}) {
    try {
      check = std::make_unique<CudnnCheck>(SearchSettings::from_environment(), facts);
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
    for (const bool bias : {false, true})
      for (const int64_t outputs : {3, 4, 320})
        for (const int64_t stride : {1, 2}) check->plan(conv(320, outputs, stride, bias));
    EXPECT_EQ(check->planned().calls.size(), 12U);
    check->plan(heads(40, 77));
    check->plan(heads(128, 4096));
    for (const PlannedCalls::Call& v : check->planned().calls)
      EXPECT_NE(v.engine, "") << v.problem << ": " << v.why_not;
  }
}

}  // namespace
}  // namespace tenon::cuda
