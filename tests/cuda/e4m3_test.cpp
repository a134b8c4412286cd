// Products of e4m3 on the core of each architecture: which core and arithmetic a launch gets, and its results.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/cuda/emulator.h"
#include "tests/cuda/launch_code.h"

namespace tenon::launches {
namespace {

using testing::HasSubstr;
using testing::Not;

class E4m3 : public LaunchTest {
 protected:
  Expr tensor(const std::string& name, const Shape& shape) { return input(g, name, DType::E4M3, shape); }
  Expr constant(const std::string& name, const Shape& shape) { return weight(name, DType::E4M3, shape); }

  /// Checks a product's results on an architecture; returns the names of its calls.
  std::string calls_of(const Expr& product, const std::string& arch, int64_t k, double size = 8) {
    const Launch l = launch(product.is<nodes::Linear>() ? "gemm" : "conv2d", {{"y", product * 0.5 + 1.0}});
    const auto device =
        std::make_shared<cuda::test::Emulator>(cuda::test::EmulatorOptions{.arch = arch, .multiprocessors = 4});
    std::string calls;
    const Tensors got = run_on(device, l, tensors, &calls);
    const Output& y = l.outputs.front();
    compare(y, got.at("y"), Oracle(tensors).eval(y.value), {DType::F32, DType::F32, k, size, kLostOfE4m3}, arch);
    return calls;
  }
};

TEST_F(E4m3, EachArchitectureHasItsCore) {
  const Expr x = tensor("x", {70, 160});
  for (const Expr& w : {constant("w", {50, 160}), tensor("computed", {56, 160})}) {
    EXPECT_THAT(calls_of(linear(x, w), "sm_90a", 160, 24), HasSubstr(" e4m3 WgmmaTile<"));
    EXPECT_THAT(calls_of(linear(x, w), "sm_89", 160, 24), HasSubstr(" e4m3 MmaTile<"));
  }
}

// On sm_90a mma converts e4m3: what the copy engine cannot take is multiplied in f16 there, which is exact.
TEST_F(E4m3, HopperNeverMultipliesItWithMma) {
  const Expr x = tensor("x", {70, 160}), odd = tensor("odd", {50, 160});
  EXPECT_THAT(calls_of(linear(x, odd), "sm_90a", 160, 24), HasSubstr(" f16 MmaTile<"));
  EXPECT_THAT(calls_of(linear(x, odd), "sm_89", 160, 24), HasSubstr(" e4m3 MmaTile<"));
  setenv("TENON_CUDA_CORE", "mma", 1);
  EXPECT_THAT(calls_of(linear(x, constant("w", {64, 160})), "sm_90a", 160), HasSubstr(" f16 MmaTile<"));
  unsetenv("TENON_CUDA_CORE");
}

TEST_F(E4m3, RowsThatDoNotComeInBoxesAreStoredInFront) {
  const Expr halves = concat({tensor("a", {70, 128}), tensor("b", {70, 32})}, -1),
             parts = concat({tensor("c", {70, 32}), tensor("d", {70, 128})}, -1), w = constant("w", {64, 160});
  EXPECT_THAT(calls_of(linear(halves, w), "sm_90a", 160), Not(HasSubstr(";")));
  EXPECT_THAT(calls_of(linear(parts, w), "sm_90a", 160), HasSubstr(";"));
}

TEST_F(E4m3, IsWidenedBesideOtherTypesAndInConvolutions) {
  const Expr w = constant("w", {64, 160});
  for (const auto& [type, name] : {std::pair{DType::F16, " f16 "}, {DType::BF16, " bf16 "}}) {
    const Expr x = input(g, numbered("x", static_cast<int64_t>(type)), type, {70, 160});
    EXPECT_THAT(calls_of(linear(x, w), "sm_90a", 160), HasSubstr(name));
  }
  const Expr picture = tensor("picture", {1, 9, 7, 48}), filter = constant("filter", {64, 48, 3, 3});
  EXPECT_THAT(calls_of(conv2d(picture, filter, 1, {1, 1, 1, 1}), "sm_90a", 432), HasSubstr(" f16 "));
}

// Layers of a transformer of 3840 columns with 4224 tokens: the machine code of their kernels.
class E4m3Code : public LaunchCodeTest {
 protected:
  // Rows of x and w have a scale each.
  Expr layer(const std::string& name, int64_t columns, int64_t k) {
    return linear(leaf(name + ".x", DType::E4M3, {4224, k}), leaf(name + ".w", DType::E4M3, {columns, k}, true)) *
           leaf(name + ".row", DType::F32, {4224, 1}) * leaf(name + ".column", DType::F32, {columns}, true);
  }

  void expect_native(const std::string& arch, const Expr& value) {
    const bool hopper = arch == "sm_90a";
    int products = 0;
    expect_code(arch, launch("gemm", {{"y", cast(value, DType::BF16)}}), [&](const cuda::KernelSource& source) {
      cuda::KernelExpectations e;
      if (source.name.find(" e4m3 ") == std::string::npos) return e;
      ++products;
      e.contains = {hopper ? cuda::Opcode::Qgmma : cuda::Opcode::Qmma};
      e.lacks = {cuda::Opcode::Hmma, cuda::Opcode::Hgmma};
      e.wide_loads = e.wide_stores = 0.8;
      return e;
    });
    EXPECT_EQ(products, 1) << arch;
  }
};

TEST_F(E4m3Code, LayersOfATransformer) {
  SKIP_WITHOUT_NVRTC();
  const Expr gate = leaf("gate", DType::BF16, {3840}), residual = leaf("residual", DType::BF16, {4224, 3840});
  const Expr packed = layer("w1.w3", 20480, 3840);
  for (const std::string& arch : cuda::CompileDevice::architectures()) {
    expect_native(arch, layer("qkv", 11520, 3840));
    expect_native(arch, residual + gate * layer("w2", 3840, 10240));
    expect_native(arch, silu(slice(packed, -1, 0, 10240)) * slice(packed, -1, 10240, 20480));
  }
}

}  // namespace
}  // namespace tenon::launches
