// Launches whose kernels are compiled for an architecture and examined as machine code.
#pragma once
#include <gmock/gmock.h>

#include "tenon/backend/cuda/driver/compile_device.h"
#include "tests/cuda/emulated_runner.h"
#include "tests/cuda/nvrtc_environment.h"
#include "tests/skeletons/harness.h"

namespace tenon::launches {

class LaunchCodeTest : public LaunchTest {
 protected:
  void SetUp() override {
    options_.search = cuda::test::nvrtc_settings();
    options_.kernel_folder = cuda::test::kept_kernels();
    options_.threads = 2;
  }

  /// A tensor whose values are never read.
  Expr leaf(const std::string& name, DType t, const Shape& shape, bool constant = false) {
    tensors.emplace(name, HostTensor::zeros(t, shape));
    return constant ? param(g, name, t, shape) : input(g, name, t, shape);
  }

  /// EXPECTs `expected` for each kernel of a launch, and no local memory; returns their number.
  size_t expect_code(const std::string& arch, const Launch& launch, const cuda::ExpectKernel& expected) {
    const auto device = std::make_shared<cuda::CompileDevice>(arch, options_);
    run_on(device, launch, tensors);
    const std::vector<cuda::KernelReport> reports = device->finish(expected);
    for (const cuda::KernelReport& r : reports) {
      EXPECT_EQ(r.error, "") << r.name;
      EXPECT_THAT(r.violations, testing::IsEmpty()) << r.name << ", " << arch;
      EXPECT_EQ(r.kernel.stack_bytes, 0) << r.name << ", " << arch;
    }
    return reports.size();
  }

 private:
  cuda::CompileOptions options_;
};

}  // namespace tenon::launches
