// The comparator itself: what agrees, what does not, and its messages.
#include "tenon/core/compare.h"

#include <gmock/gmock.h>

namespace tenon {
namespace {

using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Comparison of(const std::vector<double>& got, const std::vector<double>& want, const Tolerance& t = {0.125, 0},
              NaN nan = NaN::Differs) {
  return compare(got, want, t, nan);
}

TEST(Compare, NumbersWithinTheToleranceAgree) {
  const Comparison c = of({1, 2.125, -3}, {1, 2, -3});
  EXPECT_TRUE(c.agrees());
  EXPECT_EQ(c.compared(), 3);
  EXPECT_EQ(c.worst(), 0.125);
  EXPECT_EQ(c.worst_share(), 1);
  EXPECT_FALSE(of({1, 2.126, -3}, {1, 2, -3}).agrees());
  EXPECT_TRUE(of({110, -0.5}, {100, -0.4375}, {0.0625, 0.1}).agrees());
  EXPECT_FALSE(of({111, 0}, {100, 0}, {0.0625, 0.1}).agrees());
}

TEST(Compare, ANaNIsNeverForgotten) {
  for (size_t at = 0; at < 5; ++at) {
    std::vector<double> got{1, 2, 3, 4, 5};
    const std::vector<double> want = got;
    got[at] = kNan;
    for (const Tolerance& t : {Tolerance{}, Tolerance{1e300, 1e300}, Tolerance{kInf, 0}}) {
      const Comparison c = of(got, want, t);
      EXPECT_FALSE(c.agrees());
      EXPECT_EQ(c.different(), 1);
      EXPECT_EQ(c.worst(), kInf);
      EXPECT_EQ(c.worst_share(), kInf);
      EXPECT_THAT(c.text(), HasSubstr("1 of 5 differ, the first at " + std::to_string(at) + ": nan, expected"));
    }
    EXPECT_FALSE(of(want, got, {1e300, 0}).agrees()) << "a number where NaN is expected";
    EXPECT_FALSE(of(want, got, {1e300, 0}, NaN::MayBeExpected).agrees()) << "a number where NaN is expected";
    EXPECT_FALSE(of(got, got).agrees()) << "nobody asked for NaN";
    EXPECT_TRUE(of(got, got, {}, NaN::MayBeExpected).agrees());
    EXPECT_FALSE(of(got, want, {}, NaN::MayBeExpected).agrees());
  }
}

TEST(Compare, ErrorsBesideANaNCount) {
  const Comparison c = of({1.5, kNan, 3, 4.5}, {1, 2, 3, 4});
  EXPECT_EQ(c.different(), 3);
  EXPECT_THAT(c.text(), HasSubstr("3 of 4 differ, the first at 0: 1.5, expected 1 within 0.125"));
}

// Every number is within its tolerance, but all of them err in the same direction.
TEST(Compare, AFactorInEveryNumberIsSeen) {
  std::vector<double> want, noisy, scaled;
  for (int i = 0; i < 4096; ++i) {
    want.push_back(std::sin(i));
    noisy.push_back(want.back() + (i % 2 ? 0.1 : -0.1));
    scaled.push_back(1.1 * want.back());
  }
  EXPECT_TRUE(of(noisy, want).agrees());
  const Comparison c = of(scaled, want);
  EXPECT_EQ(c.different(), 0);
  EXPECT_TRUE(c.wrong_factor());
  EXPECT_FALSE(c.agrees());
  EXPECT_THAT(c.text(), HasSubstr("all 4096 are 1.1 times what was expected, within 0.0"));
  EXPECT_TRUE(of({1.1, 2.1}, {1, 2}).agrees()) << "few numbers may err together";
}

TEST(Compare, InfinityIsNoTolerance) {
  EXPECT_TRUE(of({kInf, -kInf}, {kInf, -kInf}).agrees());
  EXPECT_FALSE(of({kInf}, {-kInf}, {0, 1}).agrees());
  EXPECT_FALSE(of({5}, {kInf}, {0, 1}).agrees());
  EXPECT_FALSE(of({kInf}, {5}, {0, 1}).agrees());
  EXPECT_FALSE(of({kNan}, {kInf}, {kInf, 1}).agrees());
}

TEST(Compare, WhatIsNotFiniteIsNoMagnitude) {
  for (const double v : {kNan, kInf, -kInf}) {
    const std::vector<double> want = {1, v, -7};
    EXPECT_EQ(largest_magnitude(want), 7);
    const Comparison c = compare(std::vector<double>{1, 2, -7}, want, Tolerance{0.1 * largest_magnitude(want)});
    EXPECT_THAT(c.text(), HasSubstr("1 of 3 differ, the first at 1: 2, expected "));
    EXPECT_THAT(c.text(), HasSubstr(" within 0.7; "));
  }
}

TEST(Compare, AToleranceThatIsNoNumberAllowsNothing) {
  EXPECT_FALSE(of({1.001}, {1}, {kNan, 0}).agrees());
  EXPECT_FALSE(of({1.001}, {1}, {-1, 0}).agrees());
  EXPECT_EQ(largest_magnitude(std::vector<double>{1, -7, 2}), 7);
}

TEST(Compare, SizesAndShapesAreCompared) {
  EXPECT_FALSE(of({1, 2}, {1, 2, 3}).agrees());
  EXPECT_FALSE(of({1, 2, 3}, {1, 2}).agrees());
  EXPECT_FALSE(of({}, {1}).agrees());
  EXPECT_THAT(of({}, {1}).text(), HasSubstr("[0], expected [1]"));
  const HostTensor t = HostTensor::from(DType::F32, {2, 3}, std::vector<double>(6, 1.0));
  const std::vector<double> ones(6, 1.0), fewer(5, 1.0);
  EXPECT_TRUE(compare(t, {2, 3}, ones, Tolerance{}).agrees());
  EXPECT_FALSE(compare(t, {3, 2}, ones, Tolerance{}).agrees());
  EXPECT_FALSE(compare(t, {2, 3}, fewer, Tolerance{}).agrees());
  EXPECT_THAT(compare(t, {6}, ones, Tolerance{}).text(), HasSubstr("[2,3], expected [6]"));
}

TEST(Compare, ThinnedValues) {
  EXPECT_EQ(every(std::vector<float>{0, 1, 2, 3, 4}, 2), (std::vector<double>{0, 2, 4}));
  EXPECT_EQ(every(std::vector<float>{0, 1, 2, 3}, 1), (std::vector<double>{0, 1, 2, 3}));
}

TEST(Compare, RoundingGrowsWithLengthAndType) {
  const auto at_one = [](const Rounding& r) { return r.tolerance().at(1); };
  EXPECT_LE(at_one({}), 1e-5);
  EXPECT_GT(at_one({DType::F32, DType::F32, 10000}), at_one({DType::F32, DType::F32, 10}));
  EXPECT_GT(at_one({DType::BF16}), at_one({DType::F16}));
  EXPECT_GT(at_one({DType::E4M3}), at_one({DType::BF16}));
  EXPECT_GT(at_one({DType::F32, DType::BF16, 100}), at_one({DType::F32, DType::F32, 100}));
  EXPECT_GT(at_one({.lost = 0.1}), 0.1);
}

// Each of the three gates fails on its own, just beyond its limit.
TEST(Compare, QuantizedRowsPassThreeGates) {
  const auto of = [](double scale, int different, double instead) {
    QuantizedRowsComparison c;
    c.add_scale(scale, 2);
    for (int i = 0; i < 1000; ++i) c.add(i < different ? instead : 64, 64);  // 60 and 72 are the neighbours of 64
    return c;
  };
  EXPECT_TRUE(of(2, 0, 0).agrees());
  EXPECT_THAT(of(2, 0, 0).text(), HasSubstr("100.00 % of 1000 bytes are equal, the others at most 0 steps away"));
  EXPECT_TRUE(of(2.0019, 0, 0).agrees());
  EXPECT_FALSE(of(2.0021, 0, 0).agrees());
  EXPECT_FALSE(of(kNan, 0, 0).agrees());
  for (const double neighbour : {60.0, 72.0}) {
    EXPECT_TRUE(of(2, 10, neighbour).agrees());
    EXPECT_EQ(of(2, 10, neighbour).worst_steps(), 1);
    EXPECT_FALSE(of(2, 11, neighbour).agrees());
    EXPECT_THAT(of(2, 11, neighbour).text(), HasSubstr("98.90 %"));
  }
  for (const double far : {56.0, 80.0, -64.0, kNan}) EXPECT_FALSE(of(2, 1, far).agrees()) << far;
  EXPECT_THAT(of(2, 1, 80).text(), HasSubstr("99.90 % of 1000 bytes are equal, the others at most 2 steps away"));
  QuantizedRowsComparison few;  // one of a few may differ; small numbers are measured in steps of 28 and of 2
  few.add(-0.0, 0.0);
  few.add(1.5, -0.5);
  EXPECT_TRUE(few.agrees());
  EXPECT_EQ(few.worst_steps(), 1);
  few.add(4, 6.5);
  EXPECT_FALSE(few.agrees());
}

}  // namespace
}  // namespace tenon
