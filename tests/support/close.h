// Comparisons (core/compare.h) as assertions: EXPECT_TRUE(close(got, want, tolerance)) << "where".
#pragma once
#include <gtest/gtest.h>

#include "tenon/core/compare.h"

namespace tenon {

inline ::testing::AssertionResult agreement(const Comparison& c) {
  return (c.agrees() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure()) << c.text();
}

/// `got` and `want`: two ranges of numbers. `allowed`: a Tolerance, or a function of index and expected value.
template <class Got, class Want, class Allowed>
::testing::AssertionResult close(const Got& got, const Want& want, const Allowed& allowed, NaN nan = NaN::Differs) {
  return agreement(compare(got, want, allowed, nan));
}

/// True if every difference is at most `tolerance` times the largest expected magnitude.
template <class Got, class Want>
::testing::AssertionResult close_to_largest(const Got& got, const Want& want, double tolerance) {
  return close(got, want, Tolerance{tolerance * largest_magnitude(want)});
}

}  // namespace tenon
