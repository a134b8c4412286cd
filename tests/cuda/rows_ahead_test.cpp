// Machine code for long rows: the next row is loaded into shared memory while one is computed, and nothing spills.
#include "tenon/expr/precision.h"
#include "tests/cuda/launch_code.h"

namespace tenon::launches {
namespace {

class RowsAhead : public LaunchCodeTest {
 protected:
  // The single kernel for rows over tensors of a transformer's training step.
  void expect_ahead(const std::string& arch, std::vector<Output> outputs, bool ahead) {
    cuda::KernelExpectations expected;
    (ahead ? expected.contains : expected.lacks) = {cuda::Opcode::CopyAsync};
    const auto all = [&](const cuda::KernelSource&) { return expected; };
    EXPECT_EQ(expect_code(arch, launch("rows", std::move(outputs)), all), 1u);
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
    expect_ahead(arch, {{"norm", cast(h * rsqrt(size), DType::BF16)}}, false);  // one tensor: a block per row
  }
}

}  // namespace
}  // namespace tenon::launches
