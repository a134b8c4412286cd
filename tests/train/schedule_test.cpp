// Learning rates by step.
#include "tenon/train/schedule.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tenon/core/error.h"

namespace tenon::train {
namespace {

TEST(Schedules, WarmUpPeakAndEnd) {
  for (const std::string& name : decay_names()) {
    const Schedule s{0.5, decay_of(name), 4, 20, 0.1};
    check_schedule(s);
    EXPECT_DOUBLE_EQ(s.rate(1), 0.125);
    EXPECT_DOUBLE_EQ(s.rate(3), 0.375);
    EXPECT_DOUBLE_EQ(s.rate(4), 0.5);
    EXPECT_DOUBLE_EQ(s.rate(5), 0.5);
    EXPECT_NEAR(s.rate(21), name == "constant" ? 0.5 : 0.05, 1e-15);
    EXPECT_NEAR(s.rate(30), s.rate(21), 1e-15);
    for (int64_t n = 5; n <= 20; ++n) EXPECT_LE(s.rate(n), s.rate(n - 1)) << name << " " << n;
  }
  const Schedule linear{1, Decay::Linear, 0, 8, 0}, cosine{1, Decay::Cosine, 0, 8, 0};
  EXPECT_DOUBLE_EQ(linear.rate(1), 1);
  EXPECT_DOUBLE_EQ(linear.rate(3), 0.75);
  EXPECT_DOUBLE_EQ(linear.rate(8), 0.125) << "the last step trains too";
  EXPECT_NEAR(cosine.rate(3), (1 + std::sqrt(0.5)) / 2, 1e-15);
  EXPECT_DOUBLE_EQ((Schedule{1, Decay::Linear, 0, 1, 0}).rate(1), 1) << "a run of one step";
}

TEST(Schedules, ErrorsNameTheThing) {
  EXPECT_THROW(decay_of("step"), Error);
  EXPECT_THROW(check_schedule({-1, Decay::Constant, 0, 1, 0}), Error);
  EXPECT_THROW(check_schedule({1, Decay::Linear, 0, 0, 0}), Error);
  EXPECT_THROW(check_schedule({1, Decay::Linear, -3, 10, 0}), Error);
  EXPECT_THROW(check_schedule({1, Decay::Linear, 0, 10, 2}), Error);
  EXPECT_THROW(check_schedule({NAN, Decay::Linear, 0, 10, 0}), Error);
}

}  // namespace
}  // namespace tenon::train
