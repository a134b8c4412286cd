// Ahead-of-time compilation, for GPUs that are not present.
#include "tenon/backend/cuda/driver/compile_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "tenon/core/error.h"
#include "tests/cuda/nvrtc_environment.h"

namespace tenon::cuda {
namespace {
namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CompileDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.search = test::nvrtc_settings();
    options_.kernel_folder = fs::temp_directory_path() / ("tenon_compile_" + std::to_string(getpid()));
    options_.threads = 2;
  }
  void TearDown() override { fs::remove_all(options_.kernel_folder); }

  CompileOptions options_;
};

KernelSource scale(const std::string& name, const std::string& factor) {
  return {name,
          "struct P { float* to; long n; };\nextern \"C\" __global__ void __launch_bounds__(128) "
          "tenon_kernel(const __grid_constant__ P p) { p.to[threadIdx.x] *= " +
              factor + "; }\n"};
}
constexpr std::array<std::byte, 16> kArguments = {};

TEST_F(CompileDeviceTest, FillsTheCacheForBothArchitectures) {
  SKIP_WITHOUT_NVRTC();
  EXPECT_THAT(CompileDevice::architectures(), ElementsAre("sm_89", "sm_90a"));
  for (const std::string& arch : CompileDevice::architectures()) {
    for (int round = 0; round < 2; ++round) {
      CompileDevice device(arch, options_);
      EXPECT_EQ(device.facts().arch, arch);
      const auto function = device.load(scale("scale by 2", "2.0f"));
      EXPECT_EQ(function, device.load(scale("again", "2.0f")));
      device.load(scale("scale by 3", "3.0f"));
      const auto recording = device.record([&](Stream& on) { function->enqueue(on, {.threads = 128}, kArguments); });
      recording->run(*device.make_stream());
      const std::vector<KernelReport> reports = device.finish();
      ASSERT_EQ(reports.size(), 2U);
      EXPECT_EQ(reports[0].name, "scale by 2");
      EXPECT_EQ(reports[0].calls, 1);
      EXPECT_EQ(reports[1].calls, 0);
      for (const KernelReport& report : reports) {
        EXPECT_EQ(report.error, "");
        EXPECT_GT(report.kernel.registers, 0);
        EXPECT_THAT(report.violations, IsEmpty());
        EXPECT_TRUE(fs::exists(options_.kernel_folder / (report.key + ".kernel")));
      }
      EXPECT_EQ(device.compiler().compiled(), round == 0 ? 2 : 0);
    }
  }
}

TEST_F(CompileDeviceTest, ErrorsAndViolationsAreReportedByKernel) {
  SKIP_WITHOUT_NVRTC();
  CompileDevice device("sm_89", options_);
  device.load(scale("broken", "no_such_thing"));
  const auto function = device.load(scale("narrow", "2.0f"));
  function->enqueue(*device.make_stream(), {.threads = 256, .shared_bytes = 150000}, std::span(kArguments).first(8));
  const std::vector<KernelReport> reports = device.finish([](const KernelSource& source) {
    KernelExpectations expected;
    if (source.name == "narrow") expected.wide_loads = 1;
    return expected;
  });
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_THAT(reports[0].error, HasSubstr("no_such_thing"));
  EXPECT_THAT(reports[1].violations,
              ElementsAre("it is called with 256 threads and declared for 128", HasSubstr("0 of 1 global loads"),
                          "it is called with 150000 bytes of shared memory; NVIDIA L4 has 101376",
                          "it takes 16 bytes of arguments and is given 8"));
}

TEST_F(CompileDeviceTest, ADamagedEntryIsCompiledAgain) {
  SKIP_WITHOUT_NVRTC();
  std::string key;
  for (int round = 0; round < 3; ++round) {
    CompileDevice device("sm_89", options_);
    device.load(scale("scale", "2.0f"));
    key = device.finish()[0].key;
    EXPECT_EQ(device.compiler().compiled(), round == 2 ? 0 : 1);
    if (round == 0) std::ofstream(options_.kernel_folder / (key + ".kernel")) << "TENONK01 and then something else";
  }
}

TEST_F(CompileDeviceTest, AFolderThatCannotBeWritten) {
  SKIP_WITHOUT_NVRTC();
  options_.kernel_folder = "/proc/no/such/folder";
  CompileDevice device("sm_89", options_);
  device.load(scale("scale", "2.0f"));
  EXPECT_EQ(device.finish()[0].error, "");
  EXPECT_EQ(device.compiler().compiled(), 1);
}

TEST_F(CompileDeviceTest, MemoryIsAddressSpace) {
  SKIP_WITHOUT_NVRTC();
  CompileDevice device("sm_90a", options_);
  const int64_t all = device.memory_available();
  {
    const auto memory = device.allocate(all);
    EXPECT_EQ(device.memory_available(), 0);
    EXPECT_THROW(device.allocate(1), Error);
    int number = 7;
    device.copy_in(*device.make_stream(), memory.get(), &number, sizeof number);
    device.copy_out(*device.make_stream(), &number, memory.get(), sizeof number);
    EXPECT_EQ(number, 0);
  }
  EXPECT_EQ(device.memory_available(), all);
}

TEST_F(CompileDeviceTest, AnUnknownArchitecture) {
  try {
    const CompileDevice device("sm_75", options_);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Usage);
    EXPECT_THAT(e.what(), HasSubstr("expected one of sm_89, sm_90a"));
  }
}

}  // namespace
}  // namespace tenon::cuda
