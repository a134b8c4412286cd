// How a picture is to be turned to stand upright, as cameras write it into EXIF.
#pragma once
#include <cstdint>
#include <span>

#include "tenon/io/image.h"

namespace tenon {

/// The orientation of a picture that is stored as it is to be seen.
inline constexpr int kUpright = 1;

/// Tag 0x0112 of the first directory of an EXIF block, which is a TIFF structure: 1 (as stored) to 8; kUpright if there
/// is none.
int exif_orientation(std::span<const uint8_t> tiff);

/// The picture upright.
Image turned(Image image, int orientation);

}  // namespace tenon
