// Scaling and cutting of 8-bit pictures, as preprocessing of networks wants it.
#pragma once
#include "tenon/io/image.h"

namespace tenon {

/// `image` at width x height by the bicubic kernel (a = -0.5), widened where the picture shrinks: columns first, then
/// rows, each rounded to 8 bits. The weights are whole multiples of 2^-22, so that pixels equal those of Pillow's
/// Image.resize(.., BICUBIC). Error(Usage) for a size outside 1..kMaxImageSide.
Image resize_bicubic(const Image& image, int64_t width, int64_t height);

/// The width x height pixels from column `left` and row `top` on; pixels outside the picture are black.
Image crop(const Image& image, int64_t left, int64_t top, int64_t width, int64_t height);

}  // namespace tenon
