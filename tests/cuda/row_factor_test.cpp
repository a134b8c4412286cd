// Norms whose factors are applied after the product: found in a launch's form, and right for every number of rows.
#include "tenon/backend/cuda/products/row_factor.h"

#include "tests/cuda/core_harness.h"
#include "tests/cuda/emulated_runner.h"

namespace tenon::launches {
namespace {

using cuda::row_factor;

class RowFactors : public LaunchTest {
 protected:
  static constexpr DType kType = DType::BF16;
  Expr rows(int64_t m, int64_t k) {
    const std::string id = "x" + std::to_string(m) + "_" + std::to_string(k);
    tensors.emplace(id, random_tensor(kType, {m, k}, 12));
    return input(g, id, kType, {m, k});
  }
  static Expr rms(const Expr& x) { return x * rsqrt(mean(x * x) + 1e-6); }
  static Expr rounded(const Expr& x) { return cast(round(x, kType), kType); }
  Launch product(const Expr& x, int64_t n) {
    const int64_t k = x.shape()[-1];
    return launch("gemm", {{"y", cast(linear(x, weight("w" + std::to_string(k), kType, {n, k})), kType)}});
  }
  bool found(const Expr& x) {
    const FormResult made = make_form(product(x, 32));
    EXPECT_TRUE(made.form);
    return made.form && row_factor(made.form->holes[0], kType).has_value();
  }
};

TEST_F(RowFactors, AreOfOneReductionOfTheRowsThemselves) {
  const Expr x = rows(4, 64), other = input(g, "other", kType, {4, 64});
  EXPECT_TRUE(found(rounded(rms(x))));
  EXPECT_TRUE(found(rounded(rsqrt(mean(x * x)) * x)));
  EXPECT_TRUE(found(rounded(x * (1.0 / (absmax(x) + 1.0)))));
  EXPECT_FALSE(found(x));
  EXPECT_FALSE(found(rounded(x * rsqrt(mean(other * other)))));      // of other rows
  EXPECT_FALSE(found(rounded(rms(x) * other)));                      // times something that is not a factor per row
  EXPECT_FALSE(found(rounded((x - mean(x)) * rsqrt(mean(x * x)))));  // two reductions
  EXPECT_FALSE(found(rounded(x * rsqrt(mean(x * other)))));          // of more than the rows
  EXPECT_FALSE(found(cast(round(rms(x), DType::F16), kType)));       // a rounding that the rows do not have
}

TEST_F(RowFactors, OfEveryNumberOfRows) {
  for (const int64_t m : {1, 3, 8, 9, 16})
    for (const int64_t k : {72, 896}) {
      const Launch l = product(rounded(rms(rows(m, k))), 72);
      expect(l, {kType, kType, k, 4});
    }
}

// gate and up: lanes that are combined, and blocks with 16 rows that process several tiles.
TEST_F(RowFactors, WithLanesAndMaths) {
  for (const int64_t m : {2, 16}) {
    const Expr y = linear(rounded(rms(rows(m, 136))), weight("w", kType, {192, 136}));
    const Expr gate = slice(y, 1, 0, 96), up = slice(y, 1, 96, 192);
    expect(launch("gemm", {{"y", cast(silu(gate) * up, kType)}}), {kType, kType, 136, 8});
  }
}

// Blocks process several tiles, loading the next one's weights into fewer buffers than a tile has K tiles; the last
// tile is incomplete. Rows with their own weights are computed before.
TEST_F(RowFactors, BlocksThatWalk) {
  const Expr x = rows(16, 896), scaled = rms(x) * weight("norm", DType::F32, {896});
  for (const Expr& a : {rms(x), scaled}) expect(product(rounded(a), 2600), {kType, kType, 896, 4});
}

}  // namespace
}  // namespace tenon::launches
