// Sizes that pictures of several shapes are learnt at: each keeps about its shape, all have about one area.
#pragma once
#include <compare>
#include <cstdint>
#include <vector>

namespace tenon::train {

/// Of a picture, in pixels.
struct PictureSize {
  int64_t width = 0, height = 0;
  auto operator<=>(const PictureSize&) const = default;  // NOLINT(modernize-use-nullptr): takes it for a pointer
};

/// Sizes of about the area of `middle`, which is one of them, narrow ones first: widths from 1 / sqrt(2) of the side of
/// a square of that area to sqrt(2) of it, in steps of about a sixteenth of it; both sides are multiples of `unit`.
std::vector<PictureSize> aspect_buckets(PictureSize middle, int64_t unit);
/// The one whose width over height is nearest to that of `picture`, as a ratio.
PictureSize nearest_shape(const std::vector<PictureSize>& sizes, PictureSize picture);

}  // namespace tenon::train
