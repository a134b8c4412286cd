// Compares computed with expected values, for `tenon verify`, tests and examples alike.
#pragma once
#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <string>
#include <vector>

#include "tenon/core/host_tensor.h"

namespace tenon {

/// |got - want| <= absolute + relative * |want|.
struct Tolerance {
  double absolute = 0, relative = 0;

  double at(double want) const { return absolute + (std::isfinite(want) ? relative * std::abs(want) : 0); }
};

/// How results were computed, as far as it determines their error: sums of `length` terms of size / sqrt(length) each,
/// of operands rounded to `operands`, accumulated in f32 and rounded to `stored`.
struct Rounding {
  DType stored = DType::F32;
  DType operands = DType::F32;
  int64_t length = 1;
  double size = 1;
  double lost = 0;  ///< fraction of `size`, by hardware that accumulates in fewer bits

  /// Errors of n roundings accumulate like sqrt(n). An operand within f32's error of a tie may be rounded the other
  /// way: one step of one term, which is assumed to be at most ten times its usual size.
  Tolerance tolerance() const;
};

/// Whether a NaN agrees where a NaN is expected. A NaN anywhere else never agrees.
enum class NaN : uint8_t { Differs, MayBeExpected };

/// The result of a comparison. Values agree if each does, and if together they are as large as expected: errors of
/// rounding mostly cancel in the sum of got * want, a wrong factor in all values does not. That sum may be off by four
/// times what independent errors within the tolerance add up to (Hoeffding's bound), by an eighth of what they could
/// add up to at most, or by 1/64 of itself: some roundings lean to one side, and copies of a value share its error.
class Comparison {
 public:
  /// For values of these shapes; if the shapes differ, the values do too.
  Comparison(const Shape& got, const Shape& want, NaN nan = NaN::Differs);

  /// Adds the next element. Numbers agree if they are equal or, if the expected one is finite, at most `allowed` apart.
  void add(double got, double want, double allowed);

  bool agrees() const { return shapes_.empty() && different_ == 0 && !wrong_factor(); }
  int64_t compared() const { return compared_; }
  int64_t different() const { return different_; }
  /// The largest difference; infinite if one of the differing elements is not a number.
  double worst() const { return worst_; }
  /// The largest difference relative to what was allowed for it, also that of a wrong factor.
  double worst_share() const;
  /// Whether the elements agree one by one, but together they are too large or too small.
  bool wrong_factor() const;
  /// "all 80 agree, at most 1e-06 apart", or "3 of 80 differ, the first at 17: nan, expected 0.25 within 1e-05; the
  /// largest difference is inf", or "all 80 are 1.02 times what was expected, within 0.004"
  std::string text() const;

 private:
  double allowed_together() const;

  NaN nan_;
  std::string shapes_;  ///< what is wrong with them
  int64_t compared_ = 0, different_ = 0, first_ = -1;
  double first_got_ = 0, first_want_ = 0, first_allowed_ = 0;
  double worst_ = 0, worst_share_ = 0;
  /// Sums of want * (got - want), of |want| * allowed and its square, and of want^2.
  double aligned_ = 0, allowed_ = 0, allowed_squares_ = 0, squares_ = 0;
};

/// Three checks for rows quantised to e4m3, against rows computed in fp64 and rounded once: the scales, how many bytes
/// are equal, and how far apart the others are.
class QuantizedRowsComparison {
 public:
  static constexpr double kScales = 1e-3;  ///< largest relative difference of a scale
  static constexpr double kEqual = 0.99;   ///< fraction of bytes that must be equal; with fewer than 100, all but one
  static constexpr double kSteps = 1;  ///< most steps between neighbouring e4m3 numbers that the others may differ by
  /// A sixteenth of the largest number; smaller ones are measured in its steps. A 16-bit rounding before the division
  /// may go the other way, and where terms cancel that is more than a step of what is left.
  static constexpr double kSmall = 28;

  void add_scale(double got, double want);
  /// Adds the next number of a row as stored: an e4m3 value before scaling. A NaN differs from everything.
  void add(double got, double want);

  bool agrees() const;
  double equal_share() const {
    return numbers_ ? 1 - static_cast<double>(different_) / static_cast<double>(numbers_) : 1;
  }
  /// The largest relative difference of a scale; infinite if one is not a number.
  double worst_scale() const { return worst_scale_; }
  /// The largest distance in steps; infinite if there is a NaN.
  double worst_steps() const { return worst_steps_; }
  /// "99.87 % of 16220160 bytes are equal, the others at most 1 steps away, scales within 6e-08"
  std::string text() const;

 private:
  int64_t numbers_ = 0, different_ = 0;
  double worst_steps_ = 0, worst_scale_ = 0;
};

/// The difference allowed at element i, where `want` is expected: given by a Tolerance, or by a function of both.
template <class A>
double allowed_at(const A& allowed, size_t i, double want) {
  if constexpr (std::same_as<A, Tolerance>)
    return allowed.at(want);
  else
    return allowed(i, want);
}

/// Compares two ranges of numbers, element by element.
template <class Got, class Want, class Allowed>
Comparison compare(const Got& got, const Want& want, const Allowed& allowed, NaN nan = NaN::Differs) {
  const auto length = [](const auto& x) { return Shape{static_cast<int64_t>(std::size(x))}; };
  Comparison c(length(got), length(want), nan);
  for (size_t i = 0; i < std::size(want) && i < std::size(got); ++i) {
    const double expected = static_cast<double>(want[i]);
    c.add(static_cast<double>(got[i]), expected, allowed_at(allowed, i, expected));
  }
  return c;
}

/// Compares a computed tensor with expected values and their shape.
template <class Allowed>
Comparison compare(const HostTensor& got, const Shape& shape, const std::vector<double>& want, const Allowed& allowed,
                   NaN nan = NaN::Differs) {
  if (got.shape != shape) return Comparison(got.shape, shape, nan);
  return compare(got.values(), want, allowed, nan);
}

/// The largest finite magnitude: a tolerance based on it is meaningful for all finite values, even next to infinities.
template <class Values>
double largest_magnitude(const Values& values) {
  double largest = 0;
  for (const auto v : values)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(static_cast<double>(v)));
  return largest;
}

/// Elements 0, stride, 2 stride, ..
template <class Values>
std::vector<double> every(const Values& values, size_t stride) {
  std::vector<double> out;
  for (size_t i = 0; i < std::size(values); i += stride) out.push_back(static_cast<double>(values[i]));
  return out;
}

}  // namespace tenon
