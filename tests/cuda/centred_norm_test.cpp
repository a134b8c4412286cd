// Layer norms before products of many rows: found in a launch's form, applied to the sums, and right for any mean.
#include <gmock/gmock.h>

#include <array>
#include <random>

#include "tenon/backend/cuda/products/row_factor.h"
#include "tenon/nn/norm.h"
#include "tests/cuda/emulator.h"
#include "tests/cuda/launch_code.h"

namespace tenon::launches {
namespace {

using cuda::centred_norm;
using testing::HasSubstr;
using testing::Not;

class CentredNorms : public LaunchCodeTest {
 protected:
  static constexpr double kEps = 1e-5;

  Expr rows(int64_t m, int64_t k, DType t = DType::F16) { return input(g, "x", t, {m, k}); }
  static Expr stored(const Expr& x, DType t = DType::F16) { return cast(x, t); }
  Expr whole_norm(const Expr& x) {
    const Shape columns{x.shape()[-1]};
    return nn::layer_norm(x, kEps, weight("gain", DType::F32, columns), weight("shift", DType::F32, columns));
  }
  Launch product(const Expr& x, int64_t n) {
    const DType t = x.dtype();
    return launch("gemm", {{"y", cast(linear(x, weight("w", t, {n, x.shape()[-1]})), t)}});
  }
  bool found(const Expr& x) {
    const FormResult made = make_form(product(x, 32));
    EXPECT_TRUE(made.form);
    return made.form && centred_norm(made.form->holes[0], DType::F16).has_value();
  }
  // Also expects that one kernel does all of it. With two multiprocessors each block has several tiles.
  void expect_applied(const Launch& l, const Rounding& rounding, NaN nan = NaN::Differs) {
    expect(l, rounding, nan);
    std::string calls;
    const Tensors got = run_on(two(), l, tensors, &calls);
    EXPECT_THAT(calls, HasSubstr("WgmmaTile<"));
    EXPECT_THAT(calls, Not(HasSubstr("hole.0")));
    compare(l.outputs[0], got.at("y"), Oracle(tensors).eval(l.outputs[0].value), rounding, calls, nan);
  }
  static std::shared_ptr<cuda::Device> two() {
    return std::make_shared<cuda::test::Emulator>(cuda::test::EmulatorOptions{.multiprocessors = 2});
  }
  void fill(int64_t m, int64_t k, const std::function<double(int64_t row, int64_t column, double x)>& f) {
    std::mt19937 gen(3);
    std::normal_distribution<double> normal;
    std::vector<double> values;
    for (int64_t i = 0; i < m * k; ++i) values.push_back(f(i / k, i % k, normal(gen)));
    tensors.insert_or_assign("x", HostTensor::from(DType::F16, {m, k}, values));
  }
};

TEST_F(CentredNorms, AreOfTheRowsThemselves) {
  const Expr x = rows(4, 64), other = input(g, "other", DType::F16, {4, 64}), apart = x - mean(x);
  EXPECT_TRUE(found(stored(nn::layer_norm(x, kEps))));
  EXPECT_TRUE(found(stored(whole_norm(x))));
  EXPECT_TRUE(found(stored(nn::layer_norm(x, kEps) * weight("gain", DType::F32, {64}))));
  EXPECT_FALSE(found(x));
  EXPECT_FALSE(found(stored(x * rsqrt(mean(x * x) + kEps))));
  EXPECT_FALSE(found(stored(nn::layer_norm(x, kEps) * input(g, "scale", DType::F32, {64}))));  // changes between runs
  EXPECT_FALSE(found(stored(apart * rsqrt(mean(x * x)))));
  EXPECT_FALSE(found(stored((x - mean(other)) * rsqrt(mean(apart * apart)))));
  EXPECT_FALSE(found(stored(silu(nn::layer_norm(x, kEps)))));
}

TEST_F(CentredNorms, WithGainAndShiftAndTails) {
  for (const DType t : {DType::F16, DType::BF16})
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{200, 384, 320}, {193, 72, 64}, {600, 264, 128}}) {
      tensors.clear();
      const Expr x = rows(m, k, t);
      tensors.emplace("x", random_tensor(t, {m, k}, 5));
      expect_applied(product(stored(whole_norm(x), t), n), {t, t, k, 4});
      expect_applied(product(stored(nn::layer_norm(x, kEps), t), n), {t, t, k, 4});
    }
}

// Gain and shift in other types, also computed from weights, and weights that are rounded.
TEST_F(CentredNorms, WithConstantsOfOtherKinds) {
  constexpr int64_t kM = 194, kK = 128;
  tensors.emplace("x", random_tensor(DType::F16, {kM, kK}, 5));
  const Expr n = nn::layer_norm(rows(kM, kK), kEps), w = weight("w32", DType::F32, {72, kK});
  const Expr gain = param(g, "gain16", DType::BF16, {kK}), shift = param(g, "shift16", DType::BF16, {1, kK});
  const Rounding rounding{DType::F16, DType::F16, kK, 4};
  expect_applied(product(stored(n * gain + broadcast(shift, {kM, kK})), 72), rounding);
  const Expr y = linear(stored(n * gain), cast(w, DType::F16));
  expect_applied(launch("gemm", {{"y", cast(y, DType::F16)}}), rounding);
  expect(launch("gemm",
                {{"y", cast(linear(stored(n * broadcast(exp(gain), {kM, kK})), cast(w, DType::F16)), DType::F16)}}),
         rounding);
}

// Gate and up are combined; query, key and value are not.
TEST_F(CentredNorms, WithLanes) {
  tensors.emplace("x", random_tensor(DType::F16, {200, 128}, 5));
  const Expr y = linear(stored(whole_norm(rows(200, 128))), weight("w", DType::F16, {384, 128}));
  const Expr gate = slice(y, 1, 0, 192), up = slice(y, 1, 192, 384);
  expect_applied(launch("gemm", {{"y", cast(silu(gate) * up, DType::F16)}}), {DType::F16, DType::F16, 128, 8});
  std::vector<Output> parts;
  for (int64_t i = 0; i < 3; ++i) parts.push_back({numbered("part", i), slice(y, 1, 128 * i, 128 * (i + 1)) * 0.5});
  const Launch siblings = launch("gemm", parts);
  const Tensors got = run_on(two(), siblings, tensors);
  for (const Output& o : siblings.outputs)
    compare(o, got.at(o.buffer), Oracle(tensors).eval(o.value), {DType::F32, DType::F16, 128, 8}, o.buffer);
}

// Means of up to 300 deviations, a first element far from all others, and rows of equal elements.
TEST_F(CentredNorms, OfRowsFarFromZero) {
  constexpr int64_t kM = 194, kK = 256;
  const Launch l = product(stored(whole_norm(rows(kM, kK))), 96);
  const Rounding rounding{DType::F16, DType::F16, kK, 4};
  fill(kM, kK, [](int64_t row, int64_t, double x) { return x + static_cast<double>(row % 8); });
  expect_applied(l, rounding);
  fill(kM, kK, [](int64_t row, int64_t, double x) { return x * 0.1 + static_cast<double>(row % 30); });
  expect_applied(l, rounding);
  fill(kM, kK, [](int64_t, int64_t column, double x) { return column == 0 ? 1000 : x; });
  expect_applied(l, rounding);
  fill(kM, kK, [](int64_t row, int64_t, double x) { return row % 2 ? x : static_cast<double>(row % 130); });
  expect_applied(l, rounding);
}

// NaN in a row stays in that row.
TEST_F(CentredNorms, NaNInOneRow) {
  fill(200, 128, [](int64_t row, int64_t column, double x) { return row == 7 && column == 100 ? NAN : x; });
  expect_applied(product(stored(nn::layer_norm(rows(200, 128), kEps)), 64), {DType::F16, DType::F16, 128, 4},
                 NaN::MayBeExpected);
}

// A launch of a few rows takes less time than blocks that wait for their norms, unless the batch must not matter.
TEST_F(CentredNorms, OfFewRowsAreKernelsOfTheirOwn) {
  tensors.emplace("x", random_tensor(DType::F16, {192, 128}, 5));
  const Launch l = product(stored(nn::layer_norm(rows(192, 128), kEps)), 64);
  std::string calls;
  run_on(two(), l, tensors, &calls);
  EXPECT_THAT(calls, HasSubstr("hole.0"));
  const cuda::test::EmulatorOptions any_batch{.multiprocessors = 2, .batch_invariant = true};
  run_on(std::make_shared<cuda::test::Emulator>(any_batch), l, tensors, &calls);
  EXPECT_THAT(calls, Not(HasSubstr("hole.0")));
}

TEST_F(CentredNorms, CompileWithoutLocalMemory) {
  const Expr x = leaf("x", DType::F16, {8192, 320});
  const Expr a =
      stored(nn::layer_norm(x, kEps, leaf("gain", DType::F32, {320}, true), leaf("shift", DType::F32, {320}, true)));
  for (const int64_t n : {320, 960}) {
    const Expr y = linear(a, leaf(numbered("w", n), DType::F16, {n, 320}, true));
    expect_code("sm_90a", launch("gemm", {{"y", cast(y, DType::F16)}}), {});
  }
  const Expr both = linear(a, leaf("both", DType::F16, {2560, 320}, true));
  expect_code("sm_90a",
              launch("gemm", {{"y", cast(slice(both, 1, 0, 1280) * gelu(slice(both, 1, 1280, 2560)), DType::F16)}}),
              {});
}

}  // namespace
}  // namespace tenon::launches
