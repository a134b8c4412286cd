#include "tenon/train/picture_sizes.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tenon/core/error.h"

namespace tenon::train {
namespace {
constexpr double kStepsOfASide = 16;

double shape_of(PictureSize s) { return std::log(static_cast<double>(s.width) / static_cast<double>(s.height)); }
}  // namespace

std::vector<PictureSize> aspect_buckets(PictureSize middle, int64_t unit) {
  TENON_CHECK(Usage, middle.width > 0 && middle.height > 0 && unit > 0, "picture sizes")
      << middle.width << "x" << middle.height << " in multiples of " << unit << ": expected numbers above 0";
  const auto area = static_cast<double>(middle.width * middle.height), one = static_cast<double>(unit);
  const double side = std::sqrt(area);
  const int64_t step = unit * std::max<int64_t>(1, std::llround(side / kStepsOfASide / one));
  std::vector<PictureSize> out{middle};
  const auto least = static_cast<int64_t>(std::ceil(side / std::numbers::sqrt2 / static_cast<double>(step)));
  for (int64_t width = std::max<int64_t>(1, least) * step; static_cast<double>(width) <= side * std::numbers::sqrt2;
       width += step) {
    const double height = area / static_cast<double>(width * step);
    if (width != middle.width) out.push_back({width, std::max<int64_t>(1, std::llround(height)) * step});
  }
  std::ranges::sort(out);
  return out;
}

PictureSize nearest_shape(const std::vector<PictureSize>& sizes, PictureSize picture) {
  TENON_CHECK(Usage, !sizes.empty() && picture.width > 0 && picture.height > 0, "picture sizes")
      << "none of " << sizes.size() << " sizes is nearest to " << picture.width << "x" << picture.height;
  const auto apart = [&](PictureSize s) { return std::abs(shape_of(s) - shape_of(picture)); };
  return *std::ranges::min_element(sizes, {}, apart);
}

}  // namespace tenon::train
