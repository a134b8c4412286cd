// Convolutions and attention by cuDNN: requests to the library, checked by a fake that computes through the descriptors
// it is given (fake_cudnn/), and on a GPU by the real one; launches that are not sent to it; and handling of its
// failures.
#include "tenon/backend/cuda/libraries/cudnn.h"

#include <gmock/gmock.h>

#include "tests/cuda/fake_cudnn/fake_cudnn.h"
#include "tests/cuda/library_launches.h"

namespace tenon::launches {
namespace {
using testing::HasSubstr;
using testing::Not;

std::shared_ptr<const cuda::CudnnApi> fake_api() {
  return std::make_shared<const cuda::CudnnApi>(only(FAKE_CUDNN_FOLDER));
}

FakeCudnnState* fake_state() {
  const cuda::SearchResult found = load_library(cuda::Library::Cudnn, only(FAKE_CUDNN_FOLDER));
  return found.library->function<FakeCudnnState*()>("fake_cudnn_state")();
}

// With the fake library, or with none.
class EmulatorWithLibrary : public NamedEmulator {
 public:
  explicit EmulatorWithLibrary(bool has_library = true, const std::string& arch = "sm_90a") : NamedEmulator(arch) {
    if (has_library) library_ = std::make_unique<cuda::Cudnn>(fake_api(), [] { return std::shared_ptr<void>(); });
  }
  cuda::DnnLibrary* dnn_library() override { return library_.get(); }
  void announce(const cuda::DnnProblem& problem) override { announced.push_back(describe(problem)); }

  std::vector<std::string> announced;

 private:
  std::unique_ptr<cuda::DnnLibrary> library_;
};

Expr split_heads(const Expr& x, int64_t heads) {
  const Shape& s = x.shape();
  return permute(reshape(x, {s[0], s[1], heads, s[2] / heads}), {0, 2, 1, 3});
}
Expr merge_heads(const Expr& o) {
  const Shape& s = o.shape();
  return reshape(permute(o, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}

class Cudnn : public LibraryLaunchTest {
 protected:
  Cudnn() : LibraryLaunchTest("cudnn") {}
  void SetUp() override {
    LibraryLaunchTest::SetUp();
    if (emulated()) state_ = fake_state();
    *state_ = {};
  }
  void TearDown() override {
    LibraryLaunchTest::TearDown();
    EXPECT_EQ(state_->handles, 0);
    EXPECT_EQ(state_->objects, 0);
  }
  std::shared_ptr<cuda::Device> with_library() const override { return std::make_shared<EmulatorWithLibrary>(); }
  bool has_library(cuda::Device& gpu) const override { return gpu.dnn_library() != nullptr; }

  /// For a convolution whose products are rounded to `t` on the way.
  static Rounding rounded(DType t, int64_t length) { return {t, t, length, 4}; }
  Expr image(const std::string& name, DType t, int64_t side, int64_t channels) {
    return input(g, name, t, {2, side, side, channels});
  }

  FakeCudnnState unused_;  // if the library is the real one
  FakeCudnnState* state_ = &unused_;
};

TEST_F(Cudnn, PlainConvolutionsOfBothTypes) {
  for (const DType t : {DType::F16, DType::BF16}) {
    const std::string id(name_of(t));
    const Expr x = image(id + ".x", t, 9, 16), w3 = weight(id + ".w3", t, {24, 16, 3, 3});
    expect_on_library(launch("conv2d", {{"y", cast(conv2d(x, w3, 1, {1, 1, 1, 1}), t)}}), rounded(t, 144));
    expect_on_library(launch("conv2d", {{"y", cast(conv2d(x, w3, 2, {0, 0, 1, 1}), t)}}), rounded(t, 144));
    const Expr w1 = weight(id + ".w1", t, {8, 16, 1, 1});
    expect_on_library(launch("conv2d", {{"y", cast(conv2d(x, w1, 1, {0, 0, 0, 0}), t)}}), rounded(t, 16));
    // Channels are padded to whole fragments.
    const Expr odd = image(id + ".odd", t, 7, 5), wo = weight(id + ".wo", t, {8, 5, 3, 3});
    expect_on_library(launch("conv2d", {{"y", cast(conv2d(odd, wo, 1, {1, 1, 1, 1}), t)}}), rounded(t, 72));
  }
  EXPECT_EQ(state_->engine, emulated() ? kPlain : 0) << "engines of other arithmetic come before it and are none";
}

TEST_F(Cudnn, ABiasIsTheLibrarys) {
  const DType t = DType::F16;
  const Expr y = conv2d(image("x", t, 6, 8), weight("w", t, {16, 8, 3, 3}), 1, {1, 1, 1, 1});
  expect_on_library(launch("conv2d", {{"y", cast(y + param(g, "b", t, {16}), t)}}), rounded(t, 72));
  EXPECT_THAT(calls_, Not(HasSubstr("results"))) << "no pass of ours";
}

TEST_F(Cudnn, OtherEpiloguesAreAPassOfOurs) {
  const DType t = DType::F16;
  const Expr x = image("x", t, 6, 8), y = conv2d(x, weight("w", t, {3, 8, 3, 3}), 1, {1, 1, 1, 1});
  const Expr b = param(g, "b", DType::F32, {3});
  expect_on_library(launch("conv2d", {{"y", clamp((y + b) * 0.5 + 0.5, 0, 1)}}), rounded(t, 72));
  EXPECT_THAT(calls_, HasSubstr("results"));
  expect_on_library(launch("conv2d", {{"y", permute(y + b, {0, 3, 1, 2})}}), rounded(t, 72));
  const Expr r = image("r", t, 6, 3);
  expect_on_library(launch("conv2d", {{"y", cast(y + r, t)}, {"z", silu(y + r)}}), rounded(t, 72));
  const DType coarse = DType::BF16;
  const Expr c = conv2d(image("c", coarse, 6, 8), weight("wc", coarse, {3, 8, 3, 3}), 1, {1, 1, 1, 1});
  expect_on_library(launch("conv2d", {{"y", c * 0.5}}), {DType::F32, coarse, 72, 4}, false);
}

TEST_F(Cudnn, ComputedImages) {
  const DType t = DType::F16;
  const Expr x = image("x", t, 6, 8), scale = input(g, "scale", DType::F32, {2, 1, 1, 8});
  const Expr y = conv2d(cast(silu(x * broadcast(scale, x.shape())), t), weight("w", t, {16, 8, 3, 3}), 1, {1, 1, 1, 1});
  expect_on_library(launch("conv2d", {{"y", cast(y, t)}}), rounded(t, 72));
  EXPECT_THAT(calls_, HasSubstr("hole.0"));
}

TEST_F(Cudnn, StatisticsStayWithOurKernels) {
  const DType t = DType::F16;
  const Expr y = cast(conv2d(image("x", t, 8, 8), weight("w", t, {16, 8, 3, 3}), 1, {1, 1, 1, 1}), t);
  expect_on_library(launch("conv2d", {{"y", y}, {"sum", sum(reshape(y, {2, 64, 16}), ReduceOver::Inner)}}),
                    {DType::F32, t, 72 * 64, 64}, false);
}

TEST_F(Cudnn, AttentionWhereHeadsLieInStrides) {
  for (const DType t : {DType::F16, DType::BF16}) {
    const std::string id(name_of(t));
    const Expr qkv = input(g, id + ".qkv", t, {2, 70, 3 * 160});
    std::vector<Expr> parts;
    for (int i = 0; i < 3; ++i) parts.push_back(split_heads(slice(qkv, -1, i * 160, i * 160 + 160), 4));
    const Rounding near = {t, t, 70, 4};
    expect_on_library(launch("attention", {{"o", merge_heads(cast(attention(parts[0], parts[1], parts[2], 0.16), t))}}),
                      near);
    // Another length of keys and fewer heads; results in plain layout.
    const Expr kv = input(g, id + ".kv", t, {2, 77, 2 * 80});
    const Expr k = split_heads(slice(kv, -1, 0, 80), 2), v = split_heads(slice(kv, -1, 80, 160), 2);
    expect_on_library(launch("attention", {{"o", cast(attention(parts[0], k, v, 0.16), t)}}), near);
  }
  EXPECT_EQ(state_->engine, emulated() ? kCompiled : 0);
}

TEST_F(Cudnn, OtherAttentionIsOurs) {
  const DType t = DType::F16;
  const Expr q = input(g, "q", t, {1, 2, 40, 32}), k = input(g, "k", t, {1, 2, 48, 32});
  const Rounding near = {t, t, 48, 4};
  expect_on_library(launch("attention", {{"o", cast(attention(q, q, q, 0.2, true), t)}}), near, false);
  expect_on_library(launch("attention", {{"o", attention(q, k, k, 0.2)}}), near, false);  // stored as f32
  expect_on_library(launch("attention", {{"o", cast(attention(q, k, k, 0.2) * 2.0, t)}}), near, false);
  expect_on_library(launch("attention", {{"o", cast(attention(cast(silu(q), t), k, k, 0.2), t)}}), near);
}

TEST_F(Cudnn, OnlyWhatTheTableNamesRunsOnIt) {
  if (!emulated()) GTEST_SKIP();
  unsetenv("TENON_CUDA_CORE");
  const DType t = DType::F16;
  const Launch conv =
      launch("conv2d", {{"y", cast(conv2d(image("x", t, 6, 8), weight("w", t, {16, 8, 3, 3}), 1, {1, 1, 1, 1}), t)}});
  const std::string key = "conv2d 2x6x6x8 -> 6x6x16 by 3x3x1 lanes 1 bytes 2 epilogue ";
  const auto calls = [&](const std::string& line, bool has_library = true) {
    const auto device = std::make_shared<EmulatorWithLibrary>(has_library);
    if (!line.empty()) write_table(*device, line);
    run_on(device, conv, tensors, &calls_);
    return calls_;
  };
  EXPECT_THAT(calls(""), Not(HasSubstr("cudnn")));
  EXPECT_THAT(calls(key + "plain = cudnn 9.19.0 engine 5 knobs 2:16"), HasSubstr("cudnn 9.19.0 engine 5 knobs 2:16"));
  EXPECT_EQ(state_->engine, kOther);
  for (const char* other : {"plain = cudnn 9.20.0 engine 4", "plain = cudnn 9.19.0 engine 1", "plain = own",
                            "plain = cudnn", "bias = cudnn 9.19.0 engine 4"})
    EXPECT_THAT(calls(key + other), Not(HasSubstr("cudnn"))) << other;
  EXPECT_THAT(calls(key + "plain = cudnn 9.19.0 engine 4", false), Not(HasSubstr("cudnn"))) << "no library";
  setenv("TENON_CUDA_CORE", "own", 1);
  EXPECT_THAT(calls(key + "plain = cudnn 9.19.0 engine 4"), Not(HasSubstr("cudnn")));
}

TEST_F(Cudnn, TuningMeasuresItBesideOurKernel) {
  if (!emulated()) GTEST_SKIP();
  unsetenv("TENON_CUDA_CORE");
  const DType t = DType::F16;
  const Expr q = input(g, "q", t, {1, 2, 24, 16});
  const Launch conv = launch(
      "conv2d", {{"y", clamp(conv2d(image("x", t, 4, 8), weight("w", t, {8, 8, 1, 1}), 1, {0, 0, 0, 0}), 0, 1)}});
  const Launch heads = launch("attention", {{"o", cast(attention(q, q, q, 0.2), t)}});
  const auto device = std::make_shared<EmulatorWithLibrary>(true, "sm_89");
  setenv("TENON_CUDA_TUNE", "1", 1);
  run_on(device, conv, tensors, &calls_);
  run_on(device, heads, tensors, &calls_);
  unsetenv("TENON_CUDA_TUNE");
  EXPECT_THAT(calls_, Not(HasSubstr("cudnn"))) << "this run keeps what it has";
  EXPECT_GT(state_->executions, 100);
  // The emulator is slow compared with plain loops.
  EXPECT_THAT(table_text(*device), HasSubstr("by 1x1x1 lanes 1 bytes 2 epilogue pass = cudnn 9.19.0 engine "));
  EXPECT_THAT(table_text(*device), HasSubstr("attention 1x2x24 over 2x24 by 16 bytes 2 epilogue plain = cudnn 9.19.0"));
  run_on(device, conv, tensors, &calls_);
  EXPECT_THAT(calls_, HasSubstr("cudnn 9.19.0 engine"));
  run_on(device, heads, tensors, &calls_);
  EXPECT_THAT(calls_, HasSubstr("cudnn 9.19.0 engine 9"));
}

TEST_F(Cudnn, TuningReplacesLinesThatCanNoLongerRun) {
  if (!emulated()) GTEST_SKIP();
  unsetenv("TENON_CUDA_CORE");
  setenv("TENON_CUDA_TUNE", "1", 1);
  const Expr q = input(g, "q", DType::F16, {1, 2, 24, 16});
  const Launch heads = launch("attention", {{"o", cast(attention(q, q, q, 0.2), DType::F16)}});
  const std::string key = "attention 1x2x24 over 2x24 by 16 bytes 2 epilogue plain = ", now = "cudnn 9.19.0 engine ";
  const auto table_after = [&](const std::string& choice) {
    const auto device = std::make_shared<EmulatorWithLibrary>(true, "sm_89");
    write_table(*device, key + choice);
    run_on(device, heads, tensors, &calls_);
    return table_text(*device);
  };
  for (const char* other : {"cudnn 9.20.0 engine 9", "cudnn 9.19.0 engine 1", "gone"})
    EXPECT_THAT(table_after(other), HasSubstr(key + now + "9")) << other;
  for (const std::string known : {"own", "cudnn 9.19.0 engine 9"})
    EXPECT_EQ(table_after(known), key + known + "\n") << "measured again";
  unsetenv("TENON_CUDA_TUNE");
}

TEST_F(Cudnn, TheHeuristicsAreAskedOnceForAllPlansOfAProblem) {
  if (!emulated()) GTEST_SKIP();
  cuda::Cudnn library(fake_api(), [] { return std::shared_ptr<void>(); });
  const cuda::DnnConv conv{.height = 4, .width = 4, .channels = 8, .out_height = 4, .out_width = 4, .outputs = 8};
  const std::vector<cuda::DnnPlan> plans = library.likeliest(conv, 8);
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_EQ(state_->heuristics, 1);
  EXPECT_EQ(library.plan(conv, plans[1].engine), plans[1].call) << "planned already";
  EXPECT_EQ(state_->heuristics, 1);
  EXPECT_EQ(library.plan(conv, "engine 1"), nullptr);
  EXPECT_EQ(library.plan(conv, "engine 1"), nullptr);
  EXPECT_EQ(state_->heuristics, 2) << "that there is none is known too";
  EXPECT_EQ(state_->plans, 2);
}

TEST_F(Cudnn, FailuresOfPlanningLeaveOurKernels) {
  if (!emulated()) GTEST_SKIP();
  const DType t = DType::F16;
  const Launch conv =
      launch("conv2d", {{"y", cast(conv2d(image("x", t, 6, 8), weight("w", t, {16, 8, 3, 3}), 1, {1, 1, 1, 1}), t)}});
  state_->fail_plan_of = kPlain;
  state_->fail_plan = 3000;
  run_on(std::make_shared<EmulatorWithLibrary>(), conv, tensors, &calls_);
  EXPECT_THAT(calls_, HasSubstr("engine 5")) << "the next one";
  state_->offers = false;
  run_on(std::make_shared<EmulatorWithLibrary>(), conv, tensors, &calls_);
  EXPECT_THAT(calls_, Not(HasSubstr("cudnn")));
}

TEST_F(Cudnn, FailuresAreErrorsThatSayWhat) {
  if (!emulated()) GTEST_SKIP();
  const DType t = DType::F16;
  const Launch conv =
      launch("conv2d", {{"y", cast(conv2d(image("x", t, 6, 8), weight("w", t, {16, 8, 3, 3}), 1, {1, 1, 1, 1}), t)}});
  const auto failing = [&](const std::string& expected) {
    try {
      run_on(std::make_shared<EmulatorWithLibrary>(), conv, tensors, &calls_);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Device);
      EXPECT_THAT(e.what(), HasSubstr(expected));
    }
  };
  state_->fail_execute = 3000;
  failing("cannot run engine 4: CUDNN_STATUS_NOT_SUPPORTED: told to");
  state_->fail_execute = 0;
  state_->fail_heuristics = 3000;
  failing("CUDNN_STATUS_NOT_SUPPORTED: told to");
}

TEST_F(Cudnn, AnOldLibraryAndNone) {
  if (!emulated()) GTEST_SKIP();
  try {
    const cuda::CudnnApi none(only("/nonexistent"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Device);
    EXPECT_THAT(std::string(e.what()) + e.hint(), testing::AllOf(HasSubstr("not found"), HasSubstr("install")));
  }
  state_->version = 90800;
  try {
    fake_api();
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::AllOf(HasSubstr("is version 9.8.0"), HasSubstr("9.13.1 or newer")));
  }
}

TEST_F(Cudnn, EveryConvolutionAndAttentionIsAnnounced) {
  if (!emulated()) GTEST_SKIP();
  setenv("TENON_CUDA_CORE", "own", 1);
  const DType t = DType::F16;
  const Expr y = cast(conv2d(image("x", t, 6, 8), weight("w", t, {16, 8, 3, 3}), 2, {0, 0, 1, 1}), t);
  const Expr q = input(g, "q", t, {1, 2, 24, 16});
  const auto device = std::make_shared<EmulatorWithLibrary>();
  run_on(device, launch("conv2d", {{"y", y}, {"sum", sum(reshape(y, {2, 9, 16}), ReduceOver::Inner)}}), tensors,
         &calls_);
  EXPECT_EQ(device->announced.back(), "conv2d f16 2x6x6x8 -> 3x3x16 by 3x3x2 pad 0 0 1 1");
  run_on(device, launch("attention", {{"o", cast(attention(q, q, q, 0.25), t)}}), tensors, &calls_);
  EXPECT_EQ(device->announced.back(),
            "attention f16 1x2x24 over 2x24 by 16 scale 0.25 at 768 384 16 at 768 384 16 at 768 384 16 at 768 384 16");
}

}  // namespace
}  // namespace tenon::launches
