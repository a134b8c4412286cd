// Scaling and cutting of 8-bit pictures, as preprocessing of networks wants it.
#pragma once
#include "tenon/io/image.h"

namespace tenon {

/// Bicubic: a = -0.5, over two samples to each side. Lanczos: sinc(x) sinc(x / 3), over three.
enum class Resampling : uint8_t { Bicubic, Lanczos };

/// `image` at width x height by a kernel that is widened where the picture shrinks: columns first, then rows, each
/// rounded to 8 bits. The weights are whole multiples of 2^-22, so that pixels equal those of Pillow's Image.resize
/// (tested against Pillow 12.3). Error(Usage) for a size outside 1..kMaxImageSide.
Image resize(const Image& image, int64_t width, int64_t height, Resampling kernel);

/// The width x height pixels from column `left` and row `top` on; pixels outside the picture are black.
Image crop(const Image& image, int64_t left, int64_t top, int64_t width, int64_t height);

/// How a picture of another shape is brought to a size.
enum class ResizeMode : uint8_t {
  Stretch,  ///< both sides are scaled to fit ("just resize")
  Crop,     ///< scaled until both sides are covered, what stands over is cut off on both ends ("crop and resize")
  Fill      ///< scaled until it fits in, its edges are stretched to both ends ("resize and fill")
};
/// "stretch", "crop", "fill".
std::vector<std::string> resize_mode_names();
/// Error(Usage) that lists the names for another one.
ResizeMode parse_resize_mode(const std::string& name);
std::string name_of(ResizeMode mode);

/// `image` at width x height in that way, by Lanczos, with sizes and places as AUTOMATIC1111's web UI rounds them. An
/// image of that size already is returned as it is. Errors as in resize().
Image fit(const Image& image, int64_t width, int64_t height, ResizeMode mode);

}  // namespace tenon
