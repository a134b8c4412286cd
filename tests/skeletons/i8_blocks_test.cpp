// Products of i8 in blocks as launches on the CPU: holes, epilogues, weights from files of every type and computed
// ones.
#include "tenon/expr/precision.h"
#include "tests/skeletons/harness.h"

namespace tenon::launches {
namespace {

class I8BlocksLaunch : public LaunchTest {
 protected:
  static Expr product(const Expr& x, const Expr& w) { return multiplied_in(linear(x, w), DType::I8); }
};

TEST_F(I8BlocksLaunch, EveryStorageTypeAndTail) {
  for (const DType t : {DType::F32, DType::BF16, DType::F16})
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {1, 200, 260}, {17, 40, 96}, {130, 72, 65}}) {
      const std::string id = numbered(numbered(std::string(name_of(t)), m), n);
      const Expr x = input(g, id + ".x", t, {m, k}), w = weight(id + ".w", t, {n, k});
      const Expr b = param(g, id + ".b", DType::F32, {n});
      expect(launch("gemm", {{id, product(x, w) + b}}), {DType::F32, DType::F32, k, 4});
    }
}

TEST_F(I8BlocksLaunch, LanesAndResidual) {
  const Expr x = input(g, "x", DType::BF16, {3, 576}), r = input(g, "r", DType::BF16, {3, 160});
  const Expr y = product(x, weight("w", DType::F32, {2 * 160, 576}));
  const Expr gated = cast(silu(slice(y, -1, 0, 160)) * slice(y, -1, 160, 320) + r, DType::BF16);
  expect(launch("gemm", {{"y", gated}}), {DType::BF16, DType::F32, 576, 16});
}

TEST_F(I8BlocksLaunch, StackedAndTransposedWeights) {
  const Expr x = input(g, "x", DType::BF16, {5, 64});
  const Expr stacked = concat({weight("q", DType::F32, {96, 64}), weight("k", DType::F32, {32, 64})}, 0);
  expect(launch("gemm", {{"y", product(x, stacked)}}), {DType::F32, DType::F32, 64, 4});
  expect(launch("gemm", {{"z", product(x, transpose(weight("t", DType::F32, {64, 48})))}}),
         {DType::F32, DType::F32, 64, 4});
}

// Values computed in a hole are rounded to its type before they become blocks. A rounding that goes the other way may
// change a number by a step of its block.
TEST_F(I8BlocksLaunch, ANormInTheHole) {
  const Expr x = input(g, "x", DType::F32, {30, 320}), w = weight("w", DType::F32, {96, 320});
  const Expr normed = x * rsqrt(mean(x * x) + 1e-5);
  expect(launch("gemm", {{"y", product(cast(normed, DType::BF16), w)}}), {DType::F32, DType::F32, 320, 4, 0x1p-7});
}

// A file's f32 numbers are not rounded to bf16 in between: with exact Q8_0 blocks the product has their numbers.
TEST_F(I8BlocksLaunch, TakesAFilesNumbersAsTheyAre) {
  const Shape shape{48, 96};
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::ldexp(1027.0, -18) * (i % 32 == 5 ? 127 : static_cast<int>(i * 73 % 255) - 127);
  tensors.emplace("w", HostTensor::from(DType::F32, shape, values));
  const Expr x = input(g, "x", DType::F32, {2, 96}), w = param(g, "w", DType::F32, shape);
  std::vector<double> ones(192, 0.0);
  for (size_t i = 0; i < ones.size(); i += 97) ones[i] = 127;  // an x exact in blocks: a number of a column comes out
  tensors.emplace("x", HostTensor::from(DType::F32, {2, 96}, ones));
  for (const Runner& runner : runners()) {
    const std::vector<double> y = runner.run(launch("gemm", {{"y", product(x, w)}}), tensors).at("y").values();
    for (size_t n = 0; n < 48; ++n) {
      EXPECT_EQ(y[n], 127 * values[n * 96]) << runner.name;
      EXPECT_EQ(y[48 + n], 127 * values[n * 96 + 1]) << runner.name;
    }
  }
}

TEST_F(I8BlocksLaunch, OnlyLinearLayers) {
  const Expr k = input(g, "k", DType::I8, {1, 2, 8, 16});
  EXPECT_THROW(multiplied_in(attention(k, input(g, "b", DType::BF16, {1, 2, 8, 16}), k, 0.25), DType::I8), Error);
  const Launch heads = launch("attention", {{"y", multiplied_in(attention(k, k, k, 0.25), DType::I8)}});
  EXPECT_THROW(run(heads), Error);
}

TEST_F(I8BlocksLaunch, FullSize) {
  const Expr x = input(g, "x", DType::BF16, {64, 4864}), w = weight("w", DType::F32, {896, 4864});
  expect(launch("gemm", {{"y", cast(product(x, w), DType::BF16)}}), {DType::BF16, DType::F32, 4864, 4});
}

}  // namespace
}  // namespace tenon::launches
