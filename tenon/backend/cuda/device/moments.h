// Count, mean and sum of squared deviations from the mean (m2) of values that come in parts, so that their variance is
// as exact for any mean: nothing is ever squared but deviations (Chan, Golub, LeVeque, "Updating Formulae and a
// Pairwise Algorithm for Computing Sample Variances", 1979).
#pragma once
#include "tenon/backend/cuda/device/vocabulary.h"

namespace tenon::device {

struct Moments {
  float count = 0, mean = 0, m2 = 0;
};

/// Adds parts up, as deviations from the mean of the first that is not empty. What is subtracted at the end is then at
/// most 1 + parts times the result (of parts of equal counts): that mean is one of the values that are added. Empty
/// parts have count, mean and m2 of 0.
struct MomentSums {
  float count = 0, from = 0, sum = 0, squares = 0;
  DEV void add(const Moments& part) {
    from = count > 0 ? from : part.mean;
    const float apart = part.mean - from, weighted = part.count * apart;
    count += part.count;
    sum += weighted;
    squares += part.m2;
    squares += weighted * apart;
  }
  DEV Moments total() const {
    const float shift = count > 0 ? divide(sum, count) : 0.0f, m2 = squares - sum * shift;
    return {count, from + shift, m2 < 0 ? 0.0f : m2};
  }
};

/// How two parts, of `one` and of `other` values, become one: mean + to_other * apart and m2 + other's m2 + spread *
/// apart^2, where `apart` is from the one mean to the other.
struct MomentWeights {
  float to_other, spread;
  DEV static MomentWeights of(float one, float other) {
    const float both = one + other, to_other = both > 0 ? divide(other, both) : 0.0f;
    return {to_other, one * to_other};
  }
};

}  // namespace tenon::device
