// Which stop functions check_stop() asks, and when.
#include "tenon/core/stop.h"

#include <gtest/gtest.h>

#include <thread>

#include "tenon/core/beside.h"
#include "tenon/core/error.h"

namespace {
using namespace tenon;

TEST(Stop, AsksEveryScopeOfTheThread) {
  EXPECT_FALSE(stop_asked());
  bool outer = false, inner = false;
  {
    const StopScope around([&] { return outer; });
    {
      const StopScope within([&] { return inner; });
      EXPECT_FALSE(stop_asked());
      inner = true;
      EXPECT_TRUE(stop_asked());
      inner = false;
      outer = true;
      EXPECT_TRUE(stop_asked());
    }
    EXPECT_TRUE(stop_asked());
    std::thread other([] { EXPECT_FALSE(stop_asked()) << "another thread's work goes on"; });
    other.join();
    try {
      check_stop("here");
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Cancelled);
      EXPECT_STREQ(e.what(), "[here] interrupted");
    }
  }
  EXPECT_NO_THROW(check_stop());
}

TEST(Stop, AShieldHidesTheScopesAroundIt) {
  const StopScope around([] { return true; });
  {
    const StopShield shield;
    EXPECT_FALSE(stop_asked());
    bool inner = false;
    const StopScope within([&] { return inner; });
    EXPECT_FALSE(stop_asked());
    inner = true;
    EXPECT_TRUE(stop_asked());
  }
  EXPECT_TRUE(stop_asked());
}

TEST(RunBeside, DoesBothAndThrowsWhatEitherThrows) {
  int a = 0, b = 0;
  run_beside([&] { a = 1; }, [&] { b = 2; });
  EXPECT_EQ(a + b, 3);
  EXPECT_THROW(run_beside([] { throw 1; }, [&] { b = 3; }), int);
  EXPECT_EQ(b, 3);
  EXPECT_THROW(run_beside([&] { a = 4; }, [] { throw 1; }), int);
  EXPECT_EQ(a, 4);
}

}  // namespace
