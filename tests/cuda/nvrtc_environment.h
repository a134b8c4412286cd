// NVRTC for tests that compile kernels. tools/setup.sh installs it if a machine has none; a test that still finds none
// says so and is skipped.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "tenon/backend/cuda/driver/nvrtc.h"

namespace tenon::cuda::test {

/// Where tests search: the same places as for users, and where tools/setup.sh installs.
SearchSettings nvrtc_settings();

/// The compiler, or null and the reason.
struct FoundNvrtc {
  std::shared_ptr<const Nvrtc> nvrtc;
  std::string problem;
};
const FoundNvrtc& find_nvrtc();

/// Where compiled kernels are kept from one run of the tests to the next: the compiler takes most of the time of those
/// that look at machine code.
std::filesystem::path kept_kernels();
/// A kernel's machine code, from there or the compiler.
KernelBinary machine_code(const KernelSource& source, const std::string& arch);

/// A kernel in plain device source: KERNEL's entry point with `parameters` and `body`.
KernelSource plain_kernel(const std::string& name, const std::string& parameters, const std::string& body,
                          int threads = 128);

}  // namespace tenon::cuda::test

#define SKIP_WITHOUT_NVRTC() \
  if (!tenon::cuda::test::find_nvrtc().nvrtc) GTEST_SKIP() << tenon::cuda::test::find_nvrtc().problem
