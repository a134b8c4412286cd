// Pictures: 8-bit images in memory; reads and writes PNG and JPEG, and text in them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tenon/core/atomic_file.h"

namespace tenon {

/// Rows from the top, pixels from the left, channels interleaved: pixels[(y * width + x) * channels + c].
struct Image {
  int64_t width = 0, height = 0, channels = 3;
  std::vector<uint8_t> pixels;
  bool operator==(const Image&) const = default;
};

/// Largest width and height that can be read or written.
inline constexpr int64_t kMaxImageSide = 32768;
/// Most pixels of a picture that can be read: a small file may claim many more than there is memory for. Pictures of
/// more, up to kMaxImageSide a side, can be written but not read back.
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 28;

/// Key and value of a text in a picture file; values are UTF-8.
using ImageText = std::vector<std::pair<std::string, std::string>>;

/// Decodes any PNG (grey, palette, alpha, 16 bit, interlaced) to three channels of 8 bits; drops alpha, scales 16 bits
/// down, and rotates the picture upright as its EXIF orientation says. Error(Usage) beginning with `where` if the bytes
/// are not a PNG, are damaged, or exceed kMaxImageSide or kMaxImagePixels.
Image decode_png(std::span<const std::byte> bytes, const std::string& where);
/// Decodes a JPEG (grey, YCbCr, CMYK; baseline or progressive; 8 bits per sample) to three channels of 8 bits, rotated
/// upright as its EXIF orientation says. CMYK is converted to RGB without a colour profile. Error(Usage) beginning with
/// `where` if the bytes are not a JPEG, are damaged or truncated, have more bits, or exceed the same limits.
Image decode_jpeg(std::span<const std::byte> bytes, const std::string& where);
/// The same without the pixels, as the sides are in the file, before rotation.
Image decode_jpeg_header(std::span<const std::byte> bytes, const std::string& where);
/// Error(Usage) beginning with `where` for sides beyond kMaxImageSide, or more pixels than kMaxImagePixels.
void check_readable(int64_t width, int64_t height, const std::string& where);
/// Whether the bytes begin like a JPEG file.
bool is_jpeg(std::span<const std::byte> bytes);
/// Reads a PNG or JPEG file, recognised by its content. Error(Usage) also for an unreadable file.
Image read_image(const std::filesystem::path& path);
/// What read_image gives, but without pixels and with the sides before rotation; faults in the pixels are not found.
Image read_image_header(const std::filesystem::path& path);
/// decode_png of a file; Error(Usage) also for an unreadable file.
Image read_png(const std::filesystem::path& path);
/// The text chunks (tEXt, zTXt, iTXt) of a PNG file.
std::map<std::string, std::string> read_png_text(const std::filesystem::path& path);

/// Encodes an image of 1, 3 or 4 channels. ASCII text goes into tEXt chunks, other text into iTXt chunks; keys are 1 to
/// 79 ASCII characters. Error(Usage) for other channel counts, a wrong number of pixels or a bad key.
std::vector<std::byte> encode_png(const Image& image, const ImageText& text = {});
/// Error(Usage) beginning with `where` unless the image has pixels of its size and sides that can be written.
void check_writable(const Image& image, const std::string& where);
/// encode_png into a file, through write_file: all or nothing, and with Overwrite::No never over an existing file.
void write_png(const std::filesystem::path& path, const Image& image, const ImageText& text = {},
               Overwrite overwrite = Overwrite::No);

/// The key under which AUTOMATIC1111's web UI and related tools look for a picture's settings.
inline constexpr const char* kParameters = "parameters";
/// Encodes an image of 1 or 3 channels as a baseline JPEG of quality 95, colours at full resolution. Text under the key
/// kParameters goes into EXIF's user comment, where those tools look for it; if longer than that may be (32,000 UTF-16
/// units), and any other text, into comments "key: value", as many as it fills. Error(Usage) as encode_png.
std::vector<std::byte> encode_jpeg(const Image& image, const ImageText& text = {});
/// Whether the name ends like a JPEG file's.
bool has_jpeg_name(const std::filesystem::path& path);
/// encode_jpeg for a file of such a name, else encode_png.
std::vector<std::byte> encode_image(const std::filesystem::path& path, const Image& image, const ImageText& text = {});
/// encode_image into a file, as write_png.
void write_image(const std::filesystem::path& path, const Image& image, const ImageText& text = {},
                 Overwrite overwrite = Overwrite::No);

/// A picture's settings, in the order in which they are shown.
using PictureSettings = std::vector<std::pair<std::string, std::string>>;

/// The text that AUTOMATIC1111's web UI and related tools store under the key kParameters: the prompt, "Negative
/// prompt: ..." if there is one, and one line "Steps: 20, Sampler: Euler, ...". Values with a comma, a colon or a line
/// break are quoted as JSON strings.
std::string a1111_parameters(const std::string& prompt, const std::string& negative, const PictureSettings& settings);
/// The same settings as one JSON object of strings, in order; the values of `raw` are already JSON and are inserted as
/// is.
std::string settings_json(const PictureSettings& settings, const PictureSettings& raw = {});

}  // namespace tenon
