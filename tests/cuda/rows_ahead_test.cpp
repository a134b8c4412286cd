// The machine code of long rows: the next one is brought to shared memory while one is computed, and nothing spills.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "tenon/backend/cuda/driver/compile_device.h"
#include "tests/cuda/emulated_runner.h"
#include "tests/cuda/nvrtc_environment.h"
#include "tests/skeletons/harness.h"

namespace tenon::launches {
namespace {

class RowsAhead : public LaunchTest {
 protected:
  // The one kernel of rows over tensors of a transformer's training step.
  void expect_ahead(const std::string& arch, std::vector<Output> outputs, bool ahead) {
    const auto folder = std::filesystem::temp_directory_path() / ("tenon_rows_ahead_" + std::to_string(getpid()));
    cuda::CompileOptions options;
    options.search = cuda::test::nvrtc_settings();
    options.kernel_folder = folder;
    const auto device = std::make_shared<cuda::CompileDevice>(arch, options);
    run_on(device, launch("rows", std::move(outputs)), tensors);
    cuda::KernelExpectations expected;
    (ahead ? expected.contains : expected.lacks) = {cuda::Opcode::CopyAsync};
    const std::vector<cuda::KernelReport> reports = device->finish([&](const cuda::KernelSource&) { return expected; });
    EXPECT_EQ(reports.size(), 1u);
    for (const cuda::KernelReport& r : reports) {
      EXPECT_EQ(r.error, "") << r.name;
      EXPECT_THAT(r.violations, testing::IsEmpty()) << r.name << ", " << arch;
      EXPECT_EQ(r.kernel.stack_bytes, 0) << r.name << ", " << arch;
    }
    std::filesystem::remove_all(folder);
  }
  Expr leaf(const std::string& name, DType t, const Shape& shape) {
    tensors.emplace(name, HostTensor::zeros(t, shape));
    return input(g, name, t, shape);
  }
};

TEST_F(RowsAhead, GradientsOfATransformer) {
  SKIP_WITHOUT_NVRTC();
  const auto tensor = [&](const std::string& name) { return leaf(name, DType::BF16, {264, 3840}); };
  const Expr dy = tensor("dy"), more = tensor("more"), h = tensor("h"), rest = tensor("rest");
  const Expr y = cast(dy + more, DType::BF16) * leaf("w", DType::F32, {3840}), size = mean(h * h) + 1e-5;
  const Expr dx = cast(rest + y * rsqrt(size) - h * (mean(y * h) / size), DType::BF16);
  const Expr packed = leaf("packed", DType::BF16, {264, 20480}), gate = slice(packed, -1, 0, 10240);
  const QuantizedRows q = quantize_rows(cast(silu(gate) * slice(packed, -1, 10240, 20480), DType::BF16));
  for (const std::string& arch : cuda::CompileDevice::architectures()) {
    expect_ahead(arch, {{"dx", dx}}, true);
    expect_ahead(arch, {{"q", q.q}, {"scale", q.scale}}, true);
    expect_ahead(arch, {{"norm", cast(h * rsqrt(size), DType::BF16)}}, false);  // one tensor: blocks come and go
  }
}

}  // namespace
}  // namespace tenon::launches
