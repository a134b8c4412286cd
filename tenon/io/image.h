// Pictures: 8-bit images in memory, PNG in and out with text chunks, JPEG in.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tenon/io/files.h"

namespace tenon {

/// Rows from the top, pixels from the left, channels interleaved: pixels[(y * width + x) * channels + c].
struct Image {
  int64_t width = 0, height = 0, channels = 3;
  std::vector<uint8_t> pixels;
  bool operator==(const Image&) const = default;
};

/// Largest width and height that is read or written.
inline constexpr int64_t kMaxImageSide = 32768;

/// Key and value of a PNG text chunk; values are UTF-8.
using ImageText = std::vector<std::pair<std::string, std::string>>;

/// Decodes any PNG (grey, palette, alpha, 16 bit, interlaced) to three channels of 8 bits. Alpha is dropped, 16 bits
/// are scaled. Error(Usage) that begins with `where` for what is no PNG, is damaged, or is larger than kMaxImageSide.
Image decode_png(std::span<const std::byte> bytes, const std::string& where);
/// Decodes a JPEG (grey, YCbCr, CMYK; baseline or progressive; 8 bits a sample) to three channels of 8 bits, turned
/// upright as its EXIF orientation says. CMYK becomes RGB without a colour profile. Error(Usage) that begins with
/// `where` for what is no JPEG, is damaged or cut short, has more bits, or is larger than kMaxImageSide.
Image decode_jpeg(std::span<const std::byte> bytes, const std::string& where);
/// Whether the bytes begin as a JPEG file does.
bool is_jpeg(std::span<const std::byte> bytes);
/// A PNG or JPEG file, by its content. Error(Usage) also for an unreadable file.
Image read_image(const std::filesystem::path& path);
/// decode_png over a file; an unreadable file is Error(Usage) too.
Image read_png(const std::filesystem::path& path);
/// The text chunks (tEXt, zTXt, iTXt) of a PNG file.
std::map<std::string, std::string> read_png_text(const std::filesystem::path& path);

/// Encodes an image of 1, 3 or 4 channels. Text goes into tEXt chunks if it is ASCII and into iTXt chunks if not; keys
/// are 1 to 79 ASCII characters. Error(Usage) for other channels, a wrong number of pixels or a bad key.
std::vector<std::byte> encode_png(const Image& image, const ImageText& text = {});
/// encode_png into a file, through write_file: all or nothing, and never over an existing file with Overwrite::No.
void write_png(const std::filesystem::path& path, const Image& image, const ImageText& text = {},
               Overwrite overwrite = Overwrite::No);

/// The settings of a picture, in the order in which they are shown.
using PictureSettings = std::vector<std::pair<std::string, std::string>>;

/// The text that AUTOMATIC1111's web UI and its kin keep under the key "parameters": the prompt, "Negative prompt: ..."
/// if there is one, and one line "Steps: 20, Sampler: Euler, ...". Values with a comma, a colon or a line break are
/// quoted as JSON strings.
std::string a1111_parameters(const std::string& prompt, const std::string& negative, const PictureSettings& settings);
/// The same settings as one JSON object of strings, in order; `raw` keys hold JSON already and are taken as they are.
std::string settings_json(const PictureSettings& settings, const PictureSettings& raw = {});

}  // namespace tenon
