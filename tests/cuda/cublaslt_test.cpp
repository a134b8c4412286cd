// Products by cuBLASLt: requests to the library, checked by a fake that multiplies through the descriptors it is given
// (fake_cublaslt/), and on a GPU by the real one; products that are not sent to it; and handling of its failures.
#include "tenon/backend/cuda/libraries/cublaslt.h"

#include <gmock/gmock.h>

#include "tenon/backend/cuda/launches/launch_kernel.h"
#include "tenon/backend/cuda/libraries/cublaslt_api.h"
#include "tenon/backend/cuda/products/tile_choice.h"
#include "tests/cuda/fake_cublaslt/fake_cublaslt.h"
#include "tests/cuda/fake_driver/fake_driver.h"
#include "tests/cuda/library_launches.h"
#include "tests/cuda/nvrtc_environment.h"

namespace tenon::launches {
namespace {
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

cuda::LoadedLibrary fake_library() {
  const cuda::SearchResult found = load_library(cuda::Library::CublasLt, only(FAKE_CUBLASLT_FOLDER));
  EXPECT_TRUE(found.library) << found.problem;
  return *found.library;
}

// With the fake library, or with none.
class EmulatorWithLibrary : public NamedEmulator {
 public:
  explicit EmulatorWithLibrary(bool has_library = true, const std::string& arch = "sm_90a") : NamedEmulator(arch) {
    if (has_library)
      library_ = std::make_unique<cuda::CublasLt>(fake_library(), [] { return std::shared_ptr<void>(); });
  }
  cuda::MatmulLibrary* matmul_library() override { return library_.get(); }

 private:
  std::unique_ptr<cuda::MatmulLibrary> library_;
};

class CublasLt : public LibraryLaunchTest {
 protected:
  CublasLt() : LibraryLaunchTest("cublaslt") {}
  void SetUp() override {
    LibraryLaunchTest::SetUp();
    if (emulated()) state_ = fake_library().function<FakeCublasLtState*()>("fake_cublaslt_state")();
    *state_ = {};
  }
  void TearDown() override {
    LibraryLaunchTest::TearDown();
    EXPECT_EQ(state_->handles, 0);
    EXPECT_EQ(state_->descriptors, 0);
    EXPECT_EQ(state_->layouts, 0);
    EXPECT_EQ(state_->preferences, 0);
  }
  std::shared_ptr<cuda::Device> with_library() const override { return std::make_shared<EmulatorWithLibrary>(); }
  bool has_library(cuda::Device&) const override { return true; }

  void expect_on_library(const Expr& value, int64_t length, bool native = true) {
    const DType stored = value.dtype(), arithmetic = stored == DType::F16 ? DType::F16 : DType::BF16;
    LibraryLaunchTest::expect_on_library(launch("gemm", {{"y", value}}), {stored, arithmetic, length, 4}, native);
  }
  void expect_own(const Expr& value, int64_t length) { expect_on_library(value, length, false); }

  FakeCublasLtState unused_;  // if the library is the real one
  FakeCublasLtState* state_ = &unused_;
};

// Tests that need the fake library.
class CublasLtPretended : public CublasLt {
 protected:
  void SetUp() override {
    CublasLt::SetUp();
    if (!emulated()) GTEST_SKIP() << "on a GPU only";
  }
};

TEST_F(CublasLt, PlainProductsOfBothTypes) {
  for (const DType t : {DType::F16, DType::BF16})
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 8, 8}, {70, 40, 96}, {130, 200, 72}}) {
      const std::string id = numbered(numbered(std::string(name_of(t)), m), n);
      const Expr x = input(g, id + ".x", t, {m, k}), w = weight(id + ".w", t, {n, k});
      expect_on_library(cast(linear(x, w), t), k);
    }
  if (!emulated()) return;
  EXPECT_EQ(state_->epilogue, 1U);
  EXPECT_EQ(state_->alpha, 1);
  EXPECT_EQ(state_->beta, 0);
}

TEST_F(CublasLt, ABiasOfEveryTypeAndOrigin) {
  const Expr x = input(g, "x", DType::F16, {2, 50, 96}), w = weight("w", DType::F16, {40, 96});
  const Expr y = linear(x, w);
  for (const DType t : {DType::F16, DType::F32}) {
    const std::string id(name_of(t));
    expect_on_library(cast(y + param(g, id + ".param", t, {40}), DType::F16), 96);
    expect_on_library(cast(param(g, id + ".param", t, {40}) + y, DType::F16), 96);
    expect_on_library(cast(y + input(g, id + ".input", t, {40}), DType::F16), 96);
    expect_on_library(cast(y + slice(input(g, id + ".part", t, {60}), 0, 16, 56), DType::F16), 96);
    expect_on_library(cast(y + slice(input(g, id + ".odd", t, {60}), 0, 3, 43), DType::F16), 96);
  }
  EXPECT_TRUE(!emulated() || calls_.find(" bias;") != std::string::npos)
      << "one call makes it what the library takes: " << calls_;
  const Expr parts = concat({param(g, "left", DType::F32, {16}), param(g, "right", DType::F32, {24})}, 0);
  expect_on_library(cast(y + parts, DType::F16), 96);
  expect_on_library(cast(y + param(g, "a", DType::F32, {40}) * param(g, "b", DType::F32, {40}), DType::F16), 96);
  EXPECT_EQ(state_->epilogue, emulated() ? 4U : 0U);
}

TEST_F(CublasLt, ResidualsAndScales) {
  const Expr x = input(g, "x", DType::BF16, {2, 75, 64}), w = weight("w", DType::BF16, {48, 64});
  const Expr r = input(g, "r", DType::BF16, {150, 48}), b = param(g, "b", DType::BF16, {48});
  const Expr y = linear(x, w), residual = reshape(r, {2, 75, 48});
  expect_on_library(cast(y + residual, DType::BF16), 64);
  EXPECT_EQ(state_->beta, emulated() ? 1 : 0);
  expect_on_library(cast(y + b + residual, DType::BF16), 64);
  expect_on_library(cast(residual + (b + y), DType::BF16), 64);
  expect_on_library(cast(y * 0.5 + residual * 2.0 + b, DType::BF16), 64);
  EXPECT_EQ(state_->alpha, emulated() ? 0.5F : 0);
  EXPECT_EQ(state_->beta, emulated() ? 2 : 0);
  const Expr wide = input(g, "wide", DType::BF16, {2, 75, 96});
  expect_on_library(cast(y + slice(wide, -1, 16, 64), DType::BF16), 64);
  EXPECT_THAT(calls_, Not(HasSubstr("bias")));
}

TEST_F(CublasLt, OperandsInStridesAndComputedOnes) {
  const Expr wide = input(g, "wide", DType::F16, {60, 160}), w = weight("w", DType::F16, {40, 64});
  expect_on_library(cast(linear(slice(wide, -1, 8, 72), w), DType::F16), 64);
  expect_on_library(
      cast(linear(slice(wide, -1, 96, 160), slice(weight("tall", DType::F16, {80, 64}), 0, 8, 48)), DType::F16), 64);
  const Expr x = input(g, "x", DType::F16, {60, 64});
  const Expr d = x - mean(x);
  expect_on_library(cast(linear(cast(d * rsqrt(mean(d * d) + 1e-5), DType::F16), w), DType::F16), 64);
  // 70 columns of K are padded to 72.
  expect_on_library(
      cast(linear(input(g, "odd", DType::F16, {60, 70}), weight("odd.w", DType::F16, {40, 70})), DType::F16), 70);
}

TEST_F(CublasLt, BatchesOfProducts) {
  const Expr q = input(g, "q", DType::BF16, {2, 3, 40, 24}), k = input(g, "k", DType::BF16, {2, 3, 48, 24});
  expect_on_library(cast(linear(q, k) * 0.2, DType::BF16), 24);
  EXPECT_EQ(state_->batch, emulated() ? 6 : 0);
  const Expr r = input(g, "r", DType::BF16, {2, 3, 40, 48}), b = param(g, "b", DType::BF16, {48});
  expect_on_library(cast(linear(q, k) + r + b, DType::BF16), 24);
  const Expr one = input(g, "one", DType::BF16, {50, 72});  // heads side by side
  const Expr heads = permute(reshape(one, {50, 3, 24}), {1, 0, 2});
  expect_on_library(cast(linear(heads, input(g, "k3", DType::BF16, {3, 48, 24})), DType::BF16), 24);
}

TEST_F(CublasLt, WhatItsEpilogueDoesNotDoIsOurs) {
  const Expr x = input(g, "x", DType::BF16, {64, 64}), w = weight("w", DType::BF16, {48, 64}), y = linear(x, w);
  const Expr r = input(g, "r", DType::BF16, {64, 48}), b = param(g, "b", DType::BF16, {48});
  expect_own(cast(silu(y), DType::BF16), 64);
  expect_own(y, 64);                                                // stored as f32
  expect_own(cast(cast(y + b, DType::BF16) + r, DType::BF16), 64);  // rounded in between
  expect_own(cast(y + r + silu(r), DType::BF16), 64);
  expect_own(cast(y + r + input(g, "s", DType::BF16, {64, 48}), DType::BF16), 64);
  expect_own(cast(y + input(g, "f", DType::F32, {64, 48}), DType::BF16), 64);
  expect_own(cast(y + broadcast(input(g, "row", DType::BF16, {64, 1}), {64, 48}), DType::BF16), 64);
  expect_own(cast(y + y, DType::BF16), 64);
  expect_own(cast(y + 2.0, DType::BF16), 64);
  expect_own(cast(linear(x, weight("narrow", DType::BF16, {44, 64})), DType::BF16), 64);  // rows of 88 bytes
  EXPECT_EQ(state_->multiplications, 0);
}

TEST_F(CublasLtPretended, StatisticsOfWhatIsStoredAreOurs) {
  const Expr y = cast(linear(input(g, "x", DType::BF16, {64, 64}), weight("w", DType::BF16, {48, 64})), DType::BF16);
  const Launch counted = launch("gemm", {{"y", y}, {"sum", sum(reshape(y, {1, 64, 48}), ReduceOver::Inner)}});
  run_on(std::make_shared<EmulatorWithLibrary>(), counted, tensors, &calls_);
  EXPECT_THAT(calls_, Not(HasSubstr("cublaslt")));
  EXPECT_EQ(state_->multiplications, 0);
}

TEST_F(CublasLtPretended, OnlyAlgorithmsOfOneOrderOfSums) {
  expect_on_library(cast(linear(input(g, "x", DType::F16, {8, 64}), weight("w", DType::F16, {8, 64})), DType::F16), 64);
  EXPECT_EQ(state_->reductions_allowed, 2U) << "neither in place nor in the result's type";
}

TEST_F(CublasLtPretended, WithoutTheLibraryOrForbiddenItIsOurs) {
  const Expr y = cast(linear(input(g, "x", DType::F16, {16, 64}), weight("w", DType::F16, {16, 64})), DType::F16);
  const Launch l = launch("gemm", {{"y", y}});
  run_on(std::make_shared<EmulatorWithLibrary>(false), l, tensors, &calls_);
  EXPECT_THAT(calls_, Not(HasSubstr("cublaslt")));
  for (const char* core : {"own", "wgmma", "mma", ""}) {  // not measured, so not taken
    setenv("TENON_CUDA_CORE", core, 1);
    run_on(std::make_shared<EmulatorWithLibrary>(), l, tensors, &calls_);
    EXPECT_THAT(calls_, Not(HasSubstr("cublaslt"))) << core;
  }
  EXPECT_EQ(state_->multiplications, 0);
}

TEST_F(CublasLtPretended, TheMeasuredAlgorithmIsTakenWithItsMemory) {
  unsetenv("TENON_CUDA_CORE");
  const Expr x = input(g, "x", DType::F16, {24, 64}), b = param(g, "b", DType::F16, {16});
  const Expr y = linear(x, weight("w", DType::F16, {16, 64}));
  const Launch with_bias = launch("gemm", {{"y", cast(y + b, DType::F16)}}),
               plain = launch("gemm", {{"y", cast(y, DType::F16)}});
  const auto device = std::make_shared<EmulatorWithLibrary>();
  write_table(*device, "gemm 24x16x64 batch 1 lanes 1 bytes 2 epilogue bias = cublaslt 13.1.0 1800000042-24-4");
  run_on(device, with_bias, tensors, &calls_);
  EXPECT_THAT(calls_, HasSubstr("cublaslt algorithm 66 tile 24 stages 36 cluster 0 splits 4"));
  EXPECT_GE(cuda::LaunchBodies::make(device, with_bias)->memory().scratch, 4096);
  run_on(device, plain, tensors, &calls_);
  EXPECT_THAT(calls_, Not(HasSubstr("cublaslt"))) << "another epilogue";
  setenv("TENON_CUDA_CORE", "own", 1);
  run_on(device, with_bias, tensors, &calls_);
  EXPECT_THAT(calls_, Not(HasSubstr("cublaslt")));
}

TEST_F(CublasLtPretended, LinesThatThisLibraryCannotRunLeaveTheRest) {
  unsetenv("TENON_CUDA_CORE");
  const Expr y = linear(input(g, "x", DType::F16, {24, 72}), weight("w", DType::F16, {16, 72}));
  const Launch l = launch("gemm", {{"y", cast(y, DType::F16)}});
  const std::string key = "gemm 24x16x72 batch 1 lanes 1 bytes 2",
                    tile = "mma 128x128 warps 2x4 bytes 64 stages 4 splits 1";
  for (const char* choice : {"cublaslt 13.2.0 1800000042-24-4",  // another version
                             "cublaslt 13.1.0 43-0-1",           // K is not a multiple of 64
                             "cublaslt 13.1.0 99", "cublaslt 13.1.0", "cublaslt"}) {
    const auto device = std::make_shared<EmulatorWithLibrary>();
    write_table(*device, key + " epilogue plain = " + choice + "\n" + key + " = " + tile);
    run_on(device, l, tensors, &calls_);
    EXPECT_THAT(calls_, HasSubstr("MmaTile<128, 128, 2, 4, 64, 4>")) << choice;
  }
  // One of our tiles that was faster with this epilogue.
  const auto device = std::make_shared<EmulatorWithLibrary>();
  write_table(*device, key + " epilogue plain = " + tile);
  run_on(device, l, tensors, &calls_);
  EXPECT_THAT(calls_, HasSubstr("MmaTile<128, 128, 2, 4, 64, 4>"));
  EXPECT_EQ(state_->multiplications, 0);
}

TEST_F(CublasLtPretended, TuningMeasuresItBesideOurTiles) {
  unsetenv("TENON_CUDA_CORE");
  const Expr y = linear(input(g, "x", DType::F16, {32, 64}), weight("w", DType::F16, {64, 64}));
  const Launch l = launch("gemm", {{"y", cast(y + param(g, "b", DType::F16, {64}), DType::F16)}});
  const std::string key = "gemm 32x64x64 batch 1 lanes 1 bytes 2";
  for (const bool fast : {true, false}) {
    const auto device = std::make_shared<EmulatorWithLibrary>(true, "sm_89");
    state_->takes_us = fast ? 0 : 5000;  // an emulated launch takes a tenth of it
    setenv("TENON_CUDA_TUNE", "1", 1);
    run_on(device, l, tensors, &calls_);
    unsetenv("TENON_CUDA_TUNE");
    EXPECT_THAT(calls_, Not(HasSubstr("cublaslt"))) << "this run keeps what it has";
    const std::string table = table_text(*device);
    // Which of our tiles is fastest depends on what else the processor does.
    const std::string own = key + " = ", bias = key + " epilogue bias = ", library = "cublaslt 13.1.0 ";
    EXPECT_THAT(table, AllOf(HasSubstr(own), Not(HasSubstr(own + library))));
    EXPECT_THAT(table, HasSubstr(bias));
    EXPECT_EQ(table.find(bias + library) != std::string::npos, fast);
    EXPECT_EQ(table.find(" us, TuningMeasuresItBesideOurTiles cublaslt algorithm ") != std::string::npos, fast);
    run_on(device, l, tensors, &calls_);
    EXPECT_EQ(calls_.find("cublaslt algorithm 6") != std::string::npos, fast) << calls_;
  }
}

// A line of another version of the library, or of a tile that is gone, is measured again; one that can run is not.
TEST_F(CublasLtPretended, TuningReplacesLinesThatCanNoLongerRun) {
  unsetenv("TENON_CUDA_CORE");
  setenv("TENON_CUDA_TUNE", "1", 1);
  state_->takes_us = 0;
  const Expr y = linear(input(g, "x", DType::F16, {32, 64}), weight("w", DType::F16, {64, 64}));
  const Launch l = launch("gemm", {{"y", cast(y, DType::F16)}});
  const std::string key = "gemm 32x64x64 batch 1 lanes 1 bytes 2", plain = key + " epilogue plain = ",
                    tile = key + " = mma 128x128 warps 2x4 bytes 64 stages 4 splits 1", now = "cublaslt 13.1.0 ";
  for (const std::string other : {"cublaslt 13.2.0 1800000042-24-4", "gone 64x64"}) {
    const auto device = std::make_shared<EmulatorWithLibrary>(true, "sm_89");
    write_table(*device, tile + "\n" + plain + other);
    run_on(device, l, tensors, &calls_);
    EXPECT_THAT(table_text(*device), AllOf(HasSubstr(tile), HasSubstr(plain + now), Not(HasSubstr(other))));
  }
  const auto device = std::make_shared<EmulatorWithLibrary>(true, "sm_89");
  const std::string known = tile + "\n" + plain + now + "1800000042-24-4\n";
  write_table(*device, known);
  run_on(device, l, tensors, &calls_);
  EXPECT_EQ(table_text(*device), known + "\n") << "measured again";
  unsetenv("TENON_CUDA_TUNE");
}

TEST_F(CublasLtPretended, TuningPassesOverWhatTheLibraryRefusesToRun) {
  unsetenv("TENON_CUDA_CORE");
  setenv("TENON_CUDA_TUNE", "1", 1);
  const Expr y = linear(input(g, "x", DType::F16, {32, 64}), weight("w", DType::F16, {64, 64}));
  const auto device = std::make_shared<EmulatorWithLibrary>(true, "sm_89");
  state_->takes_us = 0;
  state_->fail_multiply = 15;  // the first
  run_on(device, launch("gemm", {{"y", cast(y, DType::F16)}}), tensors, &calls_);
  unsetenv("TENON_CUDA_TUNE");
  const std::string table = table_text(*device);
  EXPECT_THAT(table, HasSubstr(" epilogue plain = cublaslt 13.1.0 "));
  EXPECT_THAT(table, Not(HasSubstr("cublaslt 13.1.0 1500000042-24-1 "))) << table;
}

TEST_F(CublasLtPretended, AFailureNamesTheStatus) {
  const Launch l = launch(
      "gemm", {{"y", cast(linear(input(g, "x", DType::F16, {8, 64}), weight("w", DType::F16, {8, 64})), DType::F16)}});
  const auto device = std::make_shared<EmulatorWithLibrary>();
  for (int* failure : {&state_->fail_multiply, &state_->fail_heuristic}) {
    *failure = failure == &state_->fail_multiply ? 15 : 13;
    try {
      run_on(device, l, tensors, &calls_);
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Device);
      EXPECT_THAT(e.what(), AllOf(HasSubstr("cuBLASLt 13.1.0"), HasSubstr("CUBLAS_STATUS_")));
    }
  }
  state_->fail_heuristic = 15;  // none for this product
  run_on(device, l, tensors, &calls_);
  EXPECT_THAT(calls_, Not(HasSubstr("cublaslt")));
}

// The library as a GPU's device finds it, next to a fake driver.
class CublasLtOnDevice : public CublasLtPretended {
 protected:
  void SetUp() override {
    CublasLtPretended::SetUp();
    if (IsSkipped()) return;
    SKIP_WITHOUT_NVRTC();
    options_.search = cuda::test::nvrtc_settings();
    options_.search.system_loader = false;
    add_folder(FAKE_DRIVER_FOLDER);
    options_.kernel_folder = root_ / "kernels";
    driver_ = load_library(cuda::Library::Driver, options_.search)
                  .library->function<FakeDriverState*()>("fake_driver_state")();
    *driver_ = {};
  }
  void add_folder(const std::string& folder) {
    options_.search.cuda_path = folder + (options_.search.cuda_path.empty() ? "" : ":") + options_.search.cuda_path;
  }

  cuda::DriverOptions options_;
  FakeDriverState* driver_ = nullptr;
};

TEST_F(CublasLtOnDevice, ItIsLoadedWhenItIsAskedForAndOutlivesItsDevice) {
  add_folder(FAKE_CUBLASLT_FOLDER);
  auto device = std::make_shared<cuda::DriverDevice>(options_);
  EXPECT_EQ(state_->handles, 0);
  cuda::MatmulLibrary* const library = device->matmul_library();
  ASSERT_TRUE(library);
  EXPECT_EQ(device->matmul_library(), library);
  EXPECT_EQ(state_->handles, 1);
  const cuda::MatmulProblem problem = {.m = 8, .n = 8, .k = 64, .a = {64, 0}, .b = {64, 0}, .c = {}, .d = {8, 0}};
  const auto all = library->likeliest(problem, 8);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(library->likeliest(problem, 2).size(), 2U);
  const auto call = library->plan(problem, all[1]);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->workspace_bytes(), 4096);
  device.reset();
  EXPECT_EQ(state_->handles, 1) << "a call that was planned needs it";
}

TEST_F(CublasLtOnDevice, OneThatDoesNotStartIsNone) {
  add_folder(FAKE_CUBLASLT_FOLDER);
  state_->fail_create = 1;
  cuda::DriverDevice device(options_);
  EXPECT_EQ(device.matmul_library(), nullptr);
  EXPECT_EQ(device.matmul_library(), nullptr) << "and is not tried again";
  EXPECT_EQ(state_->fail_create, 0);
}

TEST_F(CublasLtOnDevice, ACallGoesOnTheStreamAndAFailedOneEndsARecording) {
  cuda::DriverDevice device(options_);
  void* seen = nullptr;
  const auto put = [&](void* stream) {
    seen = stream;
    EXPECT_NE(driver_->current_context, 0U);
  };
  device.call(*device.make_stream(), "a product", put);
  EXPECT_NE(seen, nullptr);
  int other = 0;
  device.call(*device.borrow_stream(&other), "a product", put);
  EXPECT_EQ(seen, &other);
  const auto fails = [&](Stream& on) {
    device.call(on, "a product", [](void*) { throw Error(ErrorKind::Device, "cuBLASLt", "no"); });
  };
  EXPECT_THROW(device.record(fails), Error);
  EXPECT_FALSE(driver_->capturing);
  EXPECT_TRUE(device.record([&](Stream& on) { device.call(on, "a product", put); }));
}

// A library call may enqueue several kernels, which are counted by recording it.
TEST_F(CublasLtOnDevice, KernelsOfACallAreCountedAndNotRun) {
  cuda::DriverDevice device(options_);
  const auto put = [&](void*) {
    EXPECT_TRUE(driver_->capturing);
    driver_->recorded += 2;
  };
  const int launches = driver_->launches;
  EXPECT_EQ(device.count(put), 2);
  EXPECT_EQ(driver_->launches, launches);
  EXPECT_THROW(device.count([](void*) { throw Error(ErrorKind::Device, "cuBLASLt", "no"); }), Error);
  EXPECT_FALSE(driver_->capturing);
  EXPECT_EQ(driver_->graphs, 0);
}

TEST_F(CublasLtPretended, WhereTheGpuIsGoneItIsLeftOpen) {
  bool gone = false;
  auto library = std::make_unique<cuda::CublasLt>(fake_library(), [&gone] {
    TENON_CHECK(Device, !gone, "GPU") << "is unusable after an earlier fault";
    return std::shared_ptr<void>();
  });
  gone = true;
  library.reset();
  EXPECT_EQ(state_->handles, 1);
  state_->handles = 0;
}

TEST(CublasLtText, AnAlgorithmIsReadBackFromItsText) {
  std::string last;
  for (const std::array<uint64_t, 8>& words :
       {std::array<uint64_t, 8>{}, {66}, {0, 0, 3}, {~uint64_t{0}, 1, 2, 3, 4, 5, 6, 7}}) {
    const cuda::MatmulAlgorithm algorithm{.version = "13.1.0", .words = words};
    last = "cublaslt " + algorithm.text();
    const auto back = cuda::TileChoice::parse(last);
    ASSERT_TRUE(back) << last;
    EXPECT_EQ(back->as<cuda::MatmulAlgorithm>(), algorithm) << last;
    EXPECT_EQ(back->text(), last);
  }
  EXPECT_EQ(last, "cublaslt 13.1.0 ffffffffffffffff-1-2-3-4-5-6-7");
  for (const char* text :
       {"cublaslt", "cublaslt ", "cublaslt 13.1.0", "cublaslt 13.1.0 ", "cublaslt 13.1.0 x", "cublaslt 13.1.0 42-",
        "cublaslt 13.1.0 42 24", "cublaslt 13.1.0 42-0", "cublaslt 13.1.0 042", "cublaslt 13.1.0 1-2-3-4-5-6-7-8-9",
        "cublaslt 13.1.0 11111111111111111", "cublaslt 13.1.0 -42"})
    EXPECT_FALSE(cuda::TileChoice::parse(text)) << '"' << text << '"';
}

// What the real library, if installed, accepts from us without a GPU: names of functions, numbers and sizes of
// attributes.
TEST(CublasLtAbi, TheRealLibraryTakesOurDescriptions) {
  const cuda::SearchResult found = load_library(cuda::Library::CublasLt, cuda::SearchSettings::from_environment());
  if (!found.library) GTEST_SKIP() << "no cuBLASLt here: " << found.problem;
  using namespace cuda::lt;
  const Api api(*found.library);
  EXPECT_THAT(api.version(), testing::MatchesRegex("1[23]\\.[0-9]+\\.[0-9]+"));
  DescriptorTag* descriptor = nullptr;
  ASSERT_EQ(api.MatmulDescCreate(&descriptor, kComputeFloat32, kFloat32), kSuccess);
  const auto described = [&](DescriptorAttribute what, auto value) {
    return api.MatmulDescSetAttribute(descriptor, what, &value, sizeof(value));
  };
  EXPECT_EQ(described(DescriptorAttribute::TransposeA, kTransposed), kSuccess);
  EXPECT_EQ(described(DescriptorAttribute::TransposeB, kAsItIs), kSuccess);
  EXPECT_EQ(described(DescriptorAttribute::Epilogue, uint32_t{kBias}), kSuccess);
  EXPECT_EQ(described(DescriptorAttribute::BiasType, int32_t{kFloat16}), kSuccess);
  EXPECT_EQ(described(DescriptorAttribute::BiasPointer, static_cast<const void*>(nullptr)), kSuccess);
  EXPECT_EQ(described(DescriptorAttribute::BiasPointer, int32_t{0}), kInvalidValue);
  EXPECT_EQ(api.MatmulDescDestroy(descriptor), kSuccess);
  LayoutTag* layout = nullptr;
  ASSERT_EQ(api.MatrixLayoutCreate(&layout, kBFloat16, 64, 32, 64), kSuccess);
  const int32_t batch = 3;
  const int64_t stride = 2048;
  EXPECT_EQ(api.MatrixLayoutSetAttribute(layout, LayoutAttribute::Batch, &batch, sizeof(batch)), kSuccess);
  EXPECT_EQ(api.MatrixLayoutSetAttribute(layout, LayoutAttribute::BatchStride, &stride, sizeof(stride)), kSuccess);
  EXPECT_EQ(api.MatrixLayoutDestroy(layout), kSuccess);
  PreferenceTag* preference = nullptr;
  ASSERT_EQ(api.MatmulPreferenceCreate(&preference), kSuccess);
  const uint64_t bytes = 1 << 20;
  EXPECT_EQ(api.MatmulPreferenceSetAttribute(preference, PreferenceAttribute::WorkspaceBytes, &bytes, sizeof(bytes)),
            kSuccess);
  for (const auto what :
       {PreferenceAttribute::Reductions, PreferenceAttribute::AlignmentA, PreferenceAttribute::AlignmentB,
        PreferenceAttribute::AlignmentC, PreferenceAttribute::AlignmentD}) {
    const uint32_t value = 2;
    EXPECT_EQ(api.MatmulPreferenceSetAttribute(preference, what, &value, sizeof(value)), kSuccess);
  }
  EXPECT_EQ(api.MatmulPreferenceDestroy(preference), kSuccess);
  const Algorithm algorithm;
  size_t written = 0;
  int32_t id = -1;
  uint16_t cluster = 1;
  EXPECT_EQ(api.MatmulAlgoConfigGetAttribute(&algorithm, ConfigAttribute::Id, &id, sizeof(id), &written), kSuccess);
  EXPECT_EQ(api.MatmulAlgoConfigGetAttribute(&algorithm, ConfigAttribute::Cluster, &cluster, sizeof(cluster), &written),
            kSuccess);
}

}  // namespace
}  // namespace tenon::launches
