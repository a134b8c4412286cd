// The oracle itself, against loops written out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/expr/precision.h"
#include "tests/expr/samples.h"
#include "tests/support/close.h"

namespace tenon {
namespace {
using ::testing::ElementsAre;
using testing::Values;

std::vector<double> eval(const Expr& e, const Values& values) { return testing::oracle_of(values).eval(e); }

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  EXPECT_TRUE(close(got, want, Tolerance{tolerance}));
}

TEST(Oracle, LeavesGiveTheirStoredValues) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {2}), y = input(g, "y", DType::E4M3, {2}),
             n = input(g, "n", DType::I32, {2});
  const std::vector<float> stored = {1.0f / 3, 1000.0f};
  std::map<std::string, HostTensor> leaves;
  for (const Expr& e : {x, y, n}) leaves[e->attrs.text] = HostTensor::from(e.dtype(), e.shape(), stored);
  Oracle oracle(leaves);
  EXPECT_THAT(oracle.eval(x), ElementsAre(0.333984375, 1000));
  EXPECT_THAT(oracle.eval(y), ElementsAre(0.34375, 448));
  EXPECT_THAT(oracle.eval(n), ElementsAre(0, 1000));
  EXPECT_THAT(oracle.eval(constant(g, 0.1)), ElementsAre(0.1));
  EXPECT_THAT(oracle.eval(iota(g, 4)), ElementsAre(0, 1, 2, 3));
}

TEST(Oracle, RoundsOnlyWhereTheExpressionSays) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {1});
  const Values v = {{"x", {1.0 / 3}}};
  EXPECT_THAT(eval(x * 3.0, v), ElementsAre(1.0));
  EXPECT_THAT(eval(cast(x, DType::BF16), v), ElementsAre(0.333984375));
  EXPECT_THAT(eval(round(x, DType::F16), v), ElementsAre(0.333251953125));
  EXPECT_THAT(eval(cast(x, DType::F32), v), ElementsAre(static_cast<double>(1.0f / 3)));
  EXPECT_THAT(eval(cast(cast(x, DType::E4M3), DType::F32) * 3.0, v), ElementsAre(1.03125));
}

TEST(Oracle, Views) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {2, 3}), i = input(g, "i", DType::I64, {2, 2});
  const Values v = {{"x", {1, 2, 3, 4, 5, 6}}, {"i", {1, 0, 0, 1}}};
  EXPECT_THAT(eval(transpose(x), v), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(eval(slice(x, 1, 1, 3), v), ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(eval(pad(x, {0, 1, 1, 0}), v), ElementsAre(0, 1, 2, 3, 0, 4, 5, 6, 0, 0, 0, 0));
  EXPECT_THAT(eval(concat({x, slice(x, 1, 0, 1)}, 1), v), ElementsAre(1, 2, 3, 1, 4, 5, 6, 4));
  EXPECT_THAT(eval(gather(x, i), v), ElementsAre(4, 5, 6, 1, 2, 3, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(eval(resize_nearest(reshape(x, {1, 2, 3, 1}), 3, 2), v), ElementsAre(1, 2, 1, 2, 4, 5));
  EXPECT_THAT(eval(broadcast(slice(x, 0, 1, 2), {2, 3}), v), ElementsAre(4, 5, 6, 4, 5, 6));
}

TEST(Oracle, AGatherOutsideIsAnError) {
  Graph g;
  const Expr y = gather(input(g, "x", DType::F64, {2, 3}), input(g, "i", DType::I32, {1}));
  try {
    eval(y, {{"x", {1, 2, 3, 4, 5, 6}}, {"i", {2}}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Numeric);
    EXPECT_STREQ(e.what(), "[gather] index 2 is outside 0..1");
  }
}

TEST(Oracle, Reductions) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {1, 2, 2, 2}), n = input(g, "n", DType::F64, {2, 2});
  const Values v = {{"x", {1, -9, 2, 3, 4, 5, 6, 7}}, {"n", {1, NAN, NAN, 1}}};
  EXPECT_THAT(eval(sum(x), v), ElementsAre(-8, 5, 9, 13));
  EXPECT_THAT(eval(mean(x, ReduceOver::Inner), v), ElementsAre(3.25, 1.5));
  EXPECT_THAT(eval(reduce_max(x, ReduceOver::Inner), v), ElementsAre(6, 7));
  EXPECT_THAT(eval(absmax(x, ReduceOver::Inner), v), ElementsAre(6, 9));
  EXPECT_THAT(eval(sumsq(x), v), ElementsAre(82, 13, 41, 85));
  for (double y : eval(reduce_max(n), v)) EXPECT_TRUE(std::isnan(y));
  for (double y : eval(absmax(n), v)) EXPECT_TRUE(std::isnan(y));
}

TEST(Oracle, LinearAgainstLoops) {
  Graph g;
  for (int64_t k : {0, 1, 7, 600}) {
    const Expr x = input(g, "x", DType::F64, {2, 37, k}), w = input(g, "w", DType::F64, {2, 11, k});
    const Expr y = linear(x, w);
    const Values v = testing::random_values(y, -1, 1);
    std::vector<double> want(2 * 37 * 11);
    for (int64_t r = 0; r < 2 * 37; ++r)
      for (int64_t c = 0; c < 11; ++c)
        for (int64_t i = 0; i < k; ++i)
          want[static_cast<size_t>(r * 11 + c)] +=
              v.at("x")[static_cast<size_t>(r * k + i)] * v.at("w")[static_cast<size_t>((r / 37 * 11 + c) * k + i)];
    expect_near(eval(y, v), want, 1e-12 * static_cast<double>(k + 1));
  }
}

TEST(Oracle, AProductLargeEnoughForTwoThreads) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {301, 515}), w = input(g, "w", DType::F64, {401, 515});
  const Expr y = linear(x, w);
  const Values v = testing::random_values(y, -1, 1);
  const std::vector<double> got = eval(y, v);
  for (int64_t r : {0, 149, 150, 151, 300})
    for (int64_t c : {0, 200, 400}) {
      double want = 0;
      for (int64_t k = 0; k < 515; ++k)
        want += v.at("x")[static_cast<size_t>(r * 515 + k)] * v.at("w")[static_cast<size_t>(c * 515 + k)];
      EXPECT_LE(std::abs(got[static_cast<size_t>(r * 401 + c)] - want), 1e-11);
    }
}

TEST(Oracle, ConvolutionAgainstLoops) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {2, 5, 6, 3}), w = input(g, "w", DType::F64, {4, 3, 3, 2});
  const Expr y = conv2d(x, w, 2, {0, 1, 2, 0});
  ASSERT_EQ(y.shape(), (Shape{2, 3, 3, 4}));
  const Values v = testing::random_values(y, -1, 1);
  std::vector<double> want(static_cast<size_t>(y.shape().numel()));
  for (int64_t i = 0; i < y.shape().numel(); ++i) {
    const Coord o = y.shape().unravel(i);
    for (int64_t k = 0; k < w.shape().numel(); ++k) {
      const Coord t = w.shape().unravel(k);
      const Coord at = {o[0], o[1] * 2 + t[2], o[2] * 2 + t[3] - 1, t[1]};
      if (t[0] != o[3] || at[1] >= 5 || at[2] < 0 || at[2] >= 6) continue;
      want[static_cast<size_t>(i)] +=
          v.at("x")[static_cast<size_t>(x.shape().ravel(at))] * v.at("w")[static_cast<size_t>(k)];
    }
  }
  expect_near(eval(y, v), want, 1e-12);
}

// Attention composed of other nodes, head by head.
Expr plain_attention(const Expr& q, const Expr& k, const Expr& v, double scale, const Expr& mask) {
  const Expr s = linear(q, k) * scale + mask, e = exp(s - reduce_max(s));
  return linear(e / sum(e), transpose(v));
}

TEST(Oracle, AttentionAgainstPlainNodes) {
  Graph g;
  const Expr q = input(g, "q", DType::F64, {2, 4, 70, 5}), k = input(g, "k", DType::F64, {2, 2, 71, 5});
  const Expr v = input(g, "v", DType::F64, {2, 2, 71, 5}), mask = input(g, "mask", DType::F64, {70, 71});
  for (bool causal : {false, true}) {
    const Expr y = attention(q, k, v, 0.7, causal);
    std::vector<Expr> heads;
    for (int64_t h = 0; h < 4; ++h)
      heads.push_back(plain_attention(slice(q, 1, h, h + 1), slice(k, 1, h / 2, h / 2 + 1),
                                      slice(v, 1, h / 2, h / 2 + 1), 0.7, mask));
    const Expr want = concat(heads, 1);
    Values values = testing::random_values(want, -1, 1);
    for (int64_t i = 0; i < 70 * 71; ++i)
      values.at("mask")[static_cast<size_t>(i)] = causal && i % 71 > i / 71 + 1 ? -INFINITY : 0;
    expect_near(eval(y, values), eval(want, values), 1e-13);
  }
}

TEST(Oracle, CausalAttentionDoesNotTouchWhatItMustNotSee) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {1, 1, 3, 1});
  const std::vector<double> y = eval(attention(x, x, x, 1, true), {{"x", {1, 2, NAN}}});
  EXPECT_EQ(y[0], 1);
  EXPECT_FALSE(std::isnan(y[1]));
  EXPECT_TRUE(std::isnan(y[2]));
}

TEST(Oracle, PermutedPartialAndQuantisedValues) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {2, 3});
  const Values v = {{"x", {1, 2, -4, 0, 0, 0}}};
  Oracle oracle = testing::oracle_of(v);
  EXPECT_THAT(oracle.eval(x * 2.0), ElementsAre(2, 4, -8, 0, 0, 0));
  EXPECT_THAT(oracle.eval(permute(x, {1, 0})), ElementsAre(1, 0, 2, 0, -4, 0));
  EXPECT_THAT(oracle.eval(slice(x, 1, 1, 3)), ElementsAre(2, -4, 0, 0));
  const QuantizedRows rows = quantize_rows(x);
  EXPECT_EQ(rows.q.dtype(), DType::E4M3);
  EXPECT_THAT(oracle.eval(rows.q), ElementsAre(112, 224, -448, 0, 0, 0));
  EXPECT_THAT(oracle.eval(rows.scale), ElementsAre(4 / 448.0, 1e-12 / 448));
}

TEST(Oracle, AsksForALeafOnceAndDropsLargeTemporaries) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {300, 300});
  int asked = 0;
  Oracle oracle([&](const Expr& leaf) {
    ++asked;
    return std::vector<double>(static_cast<size_t>(leaf.shape().numel()), 2.0);
  });
  const Expr y = x * x + x, total = sum(reshape(y, {90000}));
  EXPECT_THAT(oracle.eval(total), ElementsAre(540000));
  EXPECT_EQ(asked, 1);
  EXPECT_THAT(oracle.eval(total * 2.0), ElementsAre(1080000));  // from the kept total
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(oracle.eval(y)[7], 6);  // was dropped, and is recomputed
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(oracle.eval(y - 1.0)[7], 5);  // was asked for, so it was kept
  EXPECT_EQ(asked, 2);
}

void expect_usage_error(const std::string& text, const std::function<void()>& f) {
  try {
    f();
    FAIL() << "expected: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Usage);
    EXPECT_EQ(e.what(), text);
  }
}

TEST(Oracle, ErrorsNameTheLeaf) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {2});
  expect_usage_error("[oracle] no value for the leaf 'x'",
                     [&] { Oracle(std::map<std::string, HostTensor>()).eval(x); });
  expect_usage_error("[oracle] leaf 'x' expects [2], got [3]", [&] {
    Oracle({{"x", HostTensor::zeros(DType::F32, {3})}}).eval(x);
  });
  expect_usage_error("[oracle] leaf 'x' expects [2], got 1 values", [&] { eval(x, {{"x", {1}}}); });
  expect_usage_error("[oracle] an empty expression has no value", [&] { eval({}, {}); });
}

}  // namespace
}  // namespace tenon
