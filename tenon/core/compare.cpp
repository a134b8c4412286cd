#include "tenon/core/compare.h"

#include <cstdio>

namespace tenon {
namespace {
// All digits that a float has: two that differ look different.
std::string text_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}
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
  if (got == want) return;
  if (std::isnan(got) && std::isnan(want) && nan_ == NaN::MayBeExpected) return;
  const double difference = std::abs(got - want);  // of a NaN: NaN, which no comparison below holds for
  const bool agrees = std::isfinite(want) && difference <= allowed;
  worst_ = std::isfinite(difference) ? std::max(worst_, difference) : std::numeric_limits<double>::infinity();
  worst_share_ = allowed > 0 && std::isfinite(difference) ? std::max(worst_share_, difference / allowed)
                                                          : std::numeric_limits<double>::infinity();
  if (agrees) return;
  if (different_++ > 0) return;
  first_ = at;
  first_got_ = got, first_want_ = want, first_allowed_ = allowed;
}

std::string Comparison::text() const {
  if (!shapes_.empty()) return shapes_;
  if (!different_) return "all " + std::to_string(compared_) + " agree, at most " + text_of(worst_) + " apart";
  return std::to_string(different_) + " of " + std::to_string(compared_) + " differ, the first at " +
         std::to_string(first_) + ": " + text_of(first_got_) + ", expected " + text_of(first_want_) + " within " +
         text_of(first_allowed_) + "; the largest difference is " + text_of(worst_);
}

}  // namespace tenon
