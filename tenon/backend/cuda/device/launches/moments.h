// Count, mean and sum of squared deviations from the mean (m2) of values that come in parts. The variance is equally
// accurate for any mean, since only deviations are squared (Chan, Golub, LeVeque, "Updating Formulae and a Pairwise
// Algorithm for Computing Sample Variances", 1979).
#pragma once
#include "tenon/backend/cuda/device/vocabulary.h"

namespace tenon::device {

struct Moments {
  float count = 0, mean = 0, m2 = 0;
};

/// Adds parts up as deviations from the mean of the first non-empty one. What is subtracted at the end is then at most
/// 1 + parts times the result (for parts of equal counts), since that mean is one of the values added. Empty parts have
/// count, mean and m2 of 0.
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

/// Weights to merge two parts of `one` and `other` values: mean + to_other * apart and m2 + other's m2 + spread *
/// apart^2, where `apart` is the difference of the means, other minus one.
struct MomentWeights {
  float to_other, spread;
  DEV static MomentWeights of(float one, float other) {
    const float both = one + other, to_other = both > 0 ? divide(other, both) : 0.0f;
    return {to_other, one * to_other};
  }
};

}  // namespace tenon::device
