// Sizes for training on pictures of different aspect ratios: each keeps about its ratio, and all have about the same
// area.
#pragma once
#include <compare>
#include <cstdint>
#include <vector>

namespace tenon::train {

/// Size of a picture in pixels.
struct PictureSize {
  int64_t width = 0, height = 0;
  auto operator<=>(const PictureSize&) const = default;  // NOLINT(modernize-use-nullptr): takes it for a pointer
};

/// Sizes of about the area of `middle`, including `middle`, narrowest first. With s the side of a square of that area,
/// widths go from s / sqrt(2) to s sqrt(2) in steps of about s / 16; both sides are multiples of `unit`. Error(Usage)
/// for numbers that are not above 0.
std::vector<PictureSize> aspect_buckets(PictureSize middle, int64_t unit);
/// The size whose aspect ratio is nearest to that of `picture`, compared as a quotient. Error(Usage) if there is none.
PictureSize nearest_shape(const std::vector<PictureSize>& sizes, PictureSize picture);

}  // namespace tenon::train
