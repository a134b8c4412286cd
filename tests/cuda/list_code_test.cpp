// Machine code of launches over lists, for both architectures: 16-byte accesses, no local memory, several blocks per
// multiprocessor. And how they are launched: on the caller's stream, with the whole list in the argument.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/backend/cuda/driver/compile_device.h"
#include "tenon/optim/lion.h"
#include "tests/cuda/nvrtc_environment.h"

namespace tenon::cuda {
namespace {
using testing::IsEmpty;

class ListCodeTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.search = test::nvrtc_settings();
    options_.kernel_folder = test::kept_kernels();
    options_.threads = 2;
  }

  // The kernels of a step over a short list and over a long one.
  std::vector<KernelReport> step(const std::string& arch, const LionTypes& types, NonFinite non_finite) {
    const auto device = std::make_shared<CompileDevice>(arch, options_);
    Lion lion(make_cuda_backend(device), types);
    const std::shared_ptr<void> memory = device->allocate(1 << 20);
    const std::shared_ptr<Stream> stream = device->make_stream();
    LionOptions o;
    o.non_finite = non_finite;
    const LionTensor one = {memory.get(), memory.get(), memory.get(), types.master ? memory.get() : nullptr, 1000};
    for (const size_t tensors : {1u, 400u}) lion.step(*stream, std::vector<LionTensor>(tensors, one), o);
    KernelExpectations expected;
    expected.blocks = 4;
    return device->finish([expected](const KernelSource&) { return expected; });
  }

  CompileOptions options_;
};

TEST_F(ListCodeTest, MovesSixteenBytesAtATime) {
  SKIP_WITHOUT_NVRTC();
  struct Case {
    LionTypes types;
    NonFinite non_finite;
    int loads, stores;  // of 16 bytes
  };
  const Case cases[] = {{LionTypes{}, NonFinite::Propagate, 3, 2},
                        {LionTypes{}, NonFinite::Skip, 3, 2},
                        {LionTypes{}, NonFinite::Raise, 1, 0},
                        {LionTypes::all(DType::BF16), NonFinite::Propagate, 3, 2},
                        {LionTypes::all(DType::F16), NonFinite::Propagate, 3, 2},
                        {LionTypes::all(DType::BF16, true), NonFinite::Propagate, 4, 4}};
  for (const std::string& arch : CompileDevice::architectures())
    for (const Case& c : cases) {
      const std::vector<KernelReport> reports = step(arch, c.types, c.non_finite);
      ASSERT_EQ(reports.size(), c.non_finite == NonFinite::Raise ? 4u : 2u);
      for (size_t i = 0; i < 2; ++i) {
        const KernelReport& r = reports[i];
        EXPECT_EQ(r.error, "") << r.name;
        EXPECT_THAT(r.violations, IsEmpty()) << r.name << ", " << arch;
        EXPECT_EQ(r.calls, 1) << r.name;
        EXPECT_GE(r.kernel.loads.bytes16, c.loads) << r.name << ", " << arch;
        EXPECT_GE(r.kernel.stores.bytes16, c.stores) << r.name << ", " << arch;
        EXPECT_EQ(r.kernel.stack_bytes, 0) << r.name << ", " << arch;
        EXPECT_LE(r.kernel.registers, 64) << r.name << ", " << arch;
      }
    }
}

}  // namespace
}  // namespace tenon::cuda
