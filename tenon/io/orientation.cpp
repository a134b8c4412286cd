#include "tenon/io/orientation.h"

#include <algorithm>

namespace tenon {
namespace {

// Reads numbers of a TIFF structure in its byte order; 0 outside of it.
class Tiff {
 public:
  explicit Tiff(std::span<const uint8_t> bytes) : bytes_(bytes), little_(bytes.size() > 1 && bytes[0] == 'I') {}
  uint32_t number(size_t at, size_t count) const {
    uint32_t out = 0;
    if (at > bytes_.size() || count > bytes_.size() - at) return 0;
    for (size_t i = 0; i < count; ++i) out = out << 8 | bytes_[at + (little_ ? count - 1 - i : i)];
    return out;
  }

 private:
  std::span<const uint8_t> bytes_;
  bool little_;
};

}  // namespace

int exif_orientation(std::span<const uint8_t> bytes) {
  const Tiff tiff(bytes);
  const size_t directory = tiff.number(4, 4), entries = tiff.number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (tiff.number(entry, 2) != 0x0112) continue;
    const uint32_t value = tiff.number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : kUpright;
  }
  return kUpright;
}

Image turned(Image image, int orientation) {
  if (orientation == kUpright) return image;
  const bool exchanged = orientation >= 5;
  const bool right_to_left = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool bottom_to_top = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image out{exchanged ? image.height : image.width, exchanged ? image.width : image.height, 3, {}};
  out.pixels.resize(image.pixels.size());
  for (int64_t y = 0; y < out.height; ++y)
    for (int64_t x = 0; x < out.width; ++x) {
      int64_t from_x = exchanged ? y : x, from_y = exchanged ? x : y;
      if (right_to_left) from_x = image.width - 1 - from_x;
      if (bottom_to_top) from_y = image.height - 1 - from_y;
      std::copy_n(image.pixels.begin() + (from_y * image.width + from_x) * 3, 3,
                  out.pixels.begin() + (y * out.width + x) * 3);
    }
  return out;
}

}  // namespace tenon
