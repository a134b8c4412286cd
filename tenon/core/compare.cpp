#include "tenon/core/compare.h"

#include <cstdio>

namespace tenon {
namespace {
// As many digits as distinguish all floats.
std::string text_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// The distance from an e4m3 number of this size to the next larger one: 3 mantissa bits.
double e4m3_step(double size) { return std::ldexp(1.0, std::max(std::ilogb(size), -6) - 3); }
}  // namespace

Tolerance Rounding::tolerance() const {
  const double terms = std::sqrt(static_cast<double>(length));
  const double sum = 4 * unit_roundoff(DType::F32) * (terms + 8) * size;
  const double flip = operands == DType::F32 ? 0 : 20 * unit_roundoff(operands) * size / terms;
  const double smallest = stored == DType::E4M3 ? 0x1p-9 : stored == DType::F16 ? 0x1p-24 : 0;
  return {sum + flip + lost * size + smallest, 2 * unit_roundoff(stored)};
}

Comparison::Comparison(const Shape& got, const Shape& want, NaN nan) : nan_(nan) {
  if (got != want) shapes_ = "shape " + got.str() + ", expected " + want.str();
}

void Comparison::add(double got, double want, double allowed) {
  const int64_t at = compared_++;
  if (std::isfinite(got) && std::isfinite(want) && std::isfinite(allowed) && allowed >= 0) {
    const double room = std::abs(want) * allowed;
    aligned_ += want * (got - want);
    allowed_ += room;
    allowed_squares_ += room * room;
    squares_ += want * want;
  }
  if (got == want) return;
  if (std::isnan(got) && std::isnan(want) && nan_ == NaN::MayBeExpected) return;
  const double difference = std::abs(got - want);  // NaN for a NaN; the comparisons below are then false
  const bool agrees = std::isfinite(want) && difference <= allowed;
  worst_ = std::isfinite(difference) ? std::max(worst_, difference) : std::numeric_limits<double>::infinity();
  worst_share_ = allowed > 0 && std::isfinite(difference) ? std::max(worst_share_, difference / allowed)
                                                          : std::numeric_limits<double>::infinity();
  if (agrees) return;
  if (different_++ > 0) return;
  first_ = at;
  first_got_ = got, first_want_ = want, first_allowed_ = allowed;
}

double Comparison::allowed_together() const {
  return std::max(std::min(allowed_, std::max(allowed_ / 8, 4 * std::sqrt(allowed_squares_))), squares_ / 64);
}

bool Comparison::wrong_factor() const {
  return different_ == 0 && std::abs(aligned_) > allowed_together() * (1 + 1e-9);
}

double Comparison::worst_share() const {
  return wrong_factor() ? std::max(worst_share_, std::abs(aligned_) / allowed_together()) : worst_share_;
}

std::string Comparison::text() const {
  if (!shapes_.empty()) return shapes_;
  if (wrong_factor())
    return "all " + std::to_string(compared_) + " are " + text_of(1 + aligned_ / squares_) +
           " times what was expected, within " + text_of(allowed_together() / squares_);
  if (!different_) return "all " + std::to_string(compared_) + " agree, at most " + text_of(worst_) + " apart";
  return std::to_string(different_) + " of " + std::to_string(compared_) + " differ, the first at " +
         std::to_string(first_) + ": " + text_of(first_got_) + ", expected " + text_of(first_want_) + " within " +
         text_of(first_allowed_) + "; the largest difference is " + text_of(worst_);
}

void QuantizedRowsComparison::add_scale(double got, double want) {
  const double difference = got == want ? 0 : std::abs(got - want) / std::abs(want);
  worst_scale_ =
      std::max(worst_scale_, std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity());
}

void QuantizedRowsComparison::add(double got, double want) {
  ++numbers_;
  if (got == want) return;
  ++different_;
  // Use the smaller number's step: across a power of two, the larger number is one such step away.
  const double steps = std::abs(got - want) / e4m3_step(std::max(std::min(std::abs(got), std::abs(want)), kSmall));
  worst_steps_ = std::max(worst_steps_, std::isfinite(steps) ? steps : std::numeric_limits<double>::infinity());
}

bool QuantizedRowsComparison::agrees() const {
  return worst_scale_ <= kScales && worst_steps_ <= kSteps && (different_ <= 1 || equal_share() >= kEqual);
}

std::string QuantizedRowsComparison::text() const {
  char share[32];
  std::snprintf(share, sizeof share, "%.2f", std::floor(1e4 * equal_share()) / 100);  // rounded down: 100.00 means all
  return std::string(share) + " % of " + std::to_string(numbers_) + " bytes are equal, the others at most " +
         text_of(worst_steps_) + " steps away, scales within " + text_of(worst_scale_);
}

}  // namespace tenon
