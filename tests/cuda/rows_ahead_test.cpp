// Long rows: the next row is loaded into shared memory while one is computed, nothing spills, and teams that share a
// block do not depend on each other's order.
#include "tenon/expr/precision.h"
#include "tests/cuda/emulated_runner.h"
#include "tests/cuda/emulator.h"
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
  for (const int64_t rows : {264, 1061}) {  // for one team of a block, and for several
    const auto tensor = [&](const std::string& name) { return leaf(numbered(name, rows), DType::BF16, {rows, 3840}); };
    const Expr dy = tensor("dy"), more = tensor("more"), h = tensor("h"), rest = tensor("rest");
    const Expr w = leaf("w", DType::F32, {3840}), y = cast(dy + more, DType::BF16) * w, size = mean(h * h) + 1e-5;
    const Expr dx = cast(rest + y * rsqrt(size) - h * (mean(y * h) / size), DType::BF16);
    const Expr packed = leaf(numbered("packed", rows), DType::BF16, {rows, 20480}), gate = slice(packed, -1, 0, 10240);
    const QuantizedRows q = quantize_rows(cast(silu(gate) * slice(packed, -1, 10240, 20480), DType::BF16));
    const Expr few = leaf("few", DType::BF16, {40, 3840});
    for (const std::string& arch : cuda::CompileDevice::architectures()) {
      expect_ahead(arch, {{"dx", dx}}, true);
      expect_ahead(arch, {{"q", q.q}, {"scale", q.scale}}, true);
      expect_ahead(arch, {{"norm", cast(few * rsqrt(mean(few * few)), DType::BF16)}}, false);  // a block per row
    }
  }
}

// Results are compared with the oracle's in Plain.LongRowsThatShareColumns.
TEST_F(RowsAhead, TeamsInAnyOrder) {
  constexpr int64_t kRows = 37;
  const auto made = [&](const std::string& name, DType type, const Shape& shape) {
    tensors.insert_or_assign(name, random_tensor(type, shape, 5));
    return input(g, name, type, shape);
  };
  const auto tensor = [&](const std::string& name) { return made(name, DType::BF16, {kRows, 3840}); };
  const Expr w = made("w", DType::F32, {3840}), gain = made("gain", DType::F32, {3840});
  const Expr a = tensor("a"), b = tensor("b"), c = tensor("c"), d = tensor("d"), e = tensor("e");
  const auto scaled = [&](const Expr& x, const Expr& by) {
    return cast(x * w * gain * rsqrt(mean(by * by)), DType::BF16);
  };
  const Launch buffer_twice = launch("rows", {{"out", scaled(a, b)}}),
               buffer_once = launch("rows", {{"out", scaled(a + c + d + e + sum(a * d), b)}});
  for (const Launch& l : {buffer_twice, buffer_once}) {
    Tensors first;
    for (const bool backwards : {false, true}) {
      const auto device = std::make_shared<cuda::test::Emulator>(cuda::test::EmulatorOptions{.backwards = backwards});
      const Tensors got = run_on(device, l, tensors);
      if (first.empty()) first = got;
      EXPECT_TRUE(got.at("out").data == first.at("out").data);
    }
  }
}

// Teams add up a row in another order than a block that has it to itself, so they may not be used where a sample must
// have the same bits in every batch.
TEST_F(RowsAhead, NoTeamsWhereTheNumberOfRowsMayNotMatter) {
  constexpr int64_t kFew = 3, kMany = 37, kColumns = 5120;
  const HostTensor all = random_tensor(DType::BF16, {kMany, kColumns}, 5);
  Tensors got[2];
  for (const bool batch_invariant : {false, true}) {
    const auto device = std::make_shared<cuda::test::Emulator>(
        cuda::test::EmulatorOptions{.batch_invariant = batch_invariant, .one_order = !batch_invariant});
    for (const bool many : {false, true}) {
      const Shape shape = {many ? kMany : kFew, kColumns};
      const std::string name = numbered("x", shape[0]);
      std::vector<double> values = all.values();
      values.resize(static_cast<size_t>(shape.numel()));
      tensors.insert_or_assign(name, HostTensor::from(DType::BF16, shape, values));
      const Expr x = input(g, name, DType::BF16, shape);
      got[many] = run_on(device, launch("rows", {{"out", x * rsqrt(mean(x * x))}, {"sum", sum(x)}}), tensors);
    }
    const std::vector<double> few = got[0].at("sum").values(), more = got[1].at("sum").values();
    EXPECT_EQ(few, std::vector<double>(more.begin(), more.begin() + kFew)) << batch_invariant;
  }
}

// Small constant weights take shared memory as well, so fewer teams fit: the emulator refuses a block with too much.
TEST_F(RowsAhead, ConstantsAreCounted) {
  const auto tensor = [&](const std::string& name) {
    tensors.insert_or_assign(name, random_tensor(DType::BF16, {37, 5120}, 5));
    return input(g, name, DType::BF16, {37, 5120});
  };
  const Expr h = tensor("x") + tensor("y") + tensor("z"), w = weight("w", DType::BF16, {5120});
  const auto device = std::make_shared<cuda::test::Emulator>(cuda::test::EmulatorOptions{.arch = "sm_89"});
  EXPECT_NO_THROW(run_on(device, launch("rows", {{"out", cast(h * rsqrt(mean(h * h)) * w, DType::BF16)}}), tensors));
}

}  // namespace
}  // namespace tenon::launches
