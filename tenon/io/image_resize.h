// Resizing and cropping of 8-bit pictures, for the preprocessing of networks.
#pragma once
#include "tenon/io/image.h"

namespace tenon {

/// Bicubic: a = -0.5, two samples to each side. Lanczos: sinc(x) sinc(x / 3), three samples to each side.
enum class Resampling : uint8_t { Bicubic, Lanczos };

/// `image` resized to width x height, with the kernel widened when shrinking: columns first, then rows, each rounded to
/// 8 bits. Weights are whole multiples of 2^-22, so that pixels equal those of Pillow's Image.resize (tested against
/// Pillow 12.3). Error(Usage) for a size outside 1..kMaxImageSide, or an image without pixels or with too few.
Image resize(const Image& image, int64_t width, int64_t height, Resampling kernel);

/// The width x height pixels whose top left corner is (`left`, `top`); pixels outside the picture are black.
Image crop(const Image& image, int64_t left, int64_t top, int64_t width, int64_t height);

/// How a picture is fitted to a size of another aspect ratio.
enum class ResizeMode : uint8_t {
  Stretch,  ///< both sides are scaled independently ("just resize")
  Crop,     ///< scaled to cover the size; the excess is cut off on both sides ("crop and resize")
  Fill      ///< scaled to fit inside; its edges are stretched to fill both sides ("resize and fill")
};
/// "stretch", "crop", "fill".
std::vector<std::string> resize_mode_names();
/// Error(Usage) for an unknown name; it lists the names.
ResizeMode parse_resize_mode(const std::string& name);
std::string name_of(ResizeMode mode);

/// `image` fitted to width x height by Lanczos, with sizes and offsets rounded as in AUTOMATIC1111's web UI. An image
/// that has that size already is returned unchanged. Errors as in resize().
Image fit(const Image& image, int64_t width, int64_t height, ResizeMode mode);

}  // namespace tenon
