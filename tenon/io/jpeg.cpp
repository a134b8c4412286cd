// Reads JPEG through libjpeg: any colour space to three channels of 8 bits, rotated as its EXIF orientation says.
#include <cstddef>
#include <cstdio>
// jpeglib.h needs size_t and FILE to be declared.
#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>

#include "tenon/core/error.h"
#include "tenon/io/image.h"
#include "tenon/io/orientation.h"

namespace tenon {
namespace {

constexpr int kMaxScans = 500;            // a small progressive file could ask for thousands of passes over all blocks
constexpr int64_t kPixelsAByte = 8 * 64;  // Huffman codes take at least one bit per block of 8 x 8 pixels
constexpr unsigned kExifMarker = JPEG_APP0 + 1, kWholeMarker = 0xffff;

// As with PNG, the library reports errors by a longjmp, which skips destructors; so memory is owned outside the
// functions that call the library.
struct JpegFailure {
  jpeg_error_mgr base;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = {};
};

[[noreturn]] void fail(j_common_ptr info) {
  auto* failure = reinterpret_cast<JpegFailure*>(info->err);
  (*info->err->format_message)(info, failure->message);
  std::longjmp(failure->jump, 1);
}
// Refuses files with missing data, which would be drawn grey; other faults of careless writers change no pixel.
void on_message(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE)) fail(info);
}
void on_progress(j_common_ptr info) {
  if (!info->is_decompressor || reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  auto* failure = reinterpret_cast<JpegFailure*>(info->err);
  std::snprintf(failure->message, sizeof failure->message, "more than %d scans", kMaxScans);
  std::longjmp(failure->jump, 1);
}

struct JpegDecoder {
  JpegFailure failure;
  jpeg_decompress_struct info{};
  jpeg_progress_mgr progress{};
  bool made = false;

  JpegDecoder() {
    info.err = jpeg_std_error(&failure.base);
    failure.base.error_exit = fail;
    failure.base.emit_message = on_message;
    progress.progress_monitor = on_progress;
  }
  ~JpegDecoder() {
    if (made) jpeg_destroy_decompress(&info);
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
};

bool read_header(JpegDecoder& d, const unsigned char* bytes, unsigned long size) {
  if (setjmp(d.failure.jump)) return false;
  jpeg_create_decompress(&d.info);
  d.made = true;
  d.info.progress = &d.progress;
  jpeg_save_markers(&d.info, kExifMarker, kWholeMarker);
  jpeg_mem_src(&d.info, bytes, size);
  jpeg_read_header(&d.info, TRUE);
  // The library converts grey and YCbCr to RGB, but YCCK only to CMYK.
  const bool four = d.info.jpeg_color_space == JCS_CMYK || d.info.jpeg_color_space == JCS_YCCK;
  d.info.out_color_space = four ? JCS_CMYK : JCS_RGB;
  return true;
}

bool read_rows(JpegDecoder& d, unsigned char* pixels, size_t row_bytes) {
  if (setjmp(d.failure.jump)) return false;
  jpeg_start_decompress(&d.info);
  while (d.info.output_scanline < d.info.output_height) {
    JSAMPROW row = pixels + d.info.output_scanline * row_bytes;
    jpeg_read_scanlines(&d.info, &row, 1);
  }
  jpeg_finish_decompress(&d.info);
  return true;
}

// Ink to light, per channel, without a profile. Adobe's files, identified by a marker, store 255 - ink.
std::vector<uint8_t> rgb_of_cmyk(const std::vector<uint8_t>& cmyk, bool inverted) {
  std::vector<uint8_t> out;
  out.reserve(cmyk.size() / 4 * 3);
  for (size_t i = 0; i + 3 < cmyk.size(); i += 4)
    for (size_t c = 0; c < 3; ++c) {
      const int colour = inverted ? cmyk[i + c] : 255 - cmyk[i + c], key = inverted ? cmyk[i + 3] : 255 - cmyk[i + 3];
      out.push_back(static_cast<uint8_t>((colour * key + 127) / 255));
    }
  return out;
}

// Of the first EXIF marker that has one.
int orientation_of(const jpeg_decompress_struct& info) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  for (jpeg_saved_marker_ptr m = info.marker_list; m; m = m->next) {
    const std::string_view data(reinterpret_cast<const char*>(m->data), m->data_length);
    if (m->marker != kExifMarker || !data.starts_with(kExif)) continue;
    const int found = exif_orientation({m->data + kExif.size(), m->data_length - kExif.size()});
    if (found != kUpright) return found;
  }
  return kUpright;
}

[[noreturn]] void refuse(const std::string& where, const JpegDecoder& d) {
  throw Error(ErrorKind::Usage, where,
              std::string("cannot read as JPEG: ") + (d.failure.message[0] ? d.failure.message : "out of memory"));
}

}  // namespace

Image decode_jpeg(std::span<const std::byte> bytes, const std::string& where) {
  TENON_CHECK(Usage, is_jpeg(bytes), where) << "is not a JPEG file";
  JpegDecoder d;
  if (!read_header(d, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size())) refuse(where, d);
  Image image{d.info.image_width, d.info.image_height, 3, {}};
  TENON_CHECK(Usage, image.width <= kMaxImageSide && image.height <= kMaxImageSide, where)
      << "is " << image.width << "x" << image.height << " pixels, expected sides of at most " << kMaxImageSide;
  TENON_CHECK(Usage, image.width * image.height / kPixelsAByte <= static_cast<int64_t>(bytes.size()), where)
      << "cannot read as JPEG: " << image.width << "x" << image.height << " pixels in " << bytes.size() << " bytes";
  const bool four = d.info.out_color_space == JCS_CMYK;
  const int orientation = orientation_of(d.info);  // decoding frees the markers
  const size_t row_bytes = static_cast<size_t>(image.width) * (four ? 4 : 3);
  image.pixels.resize(row_bytes * static_cast<size_t>(image.height));
  if (!read_rows(d, image.pixels.data(), row_bytes)) refuse(where, d);
  if (four) image.pixels = rgb_of_cmyk(image.pixels, d.info.saw_Adobe_marker);
  return turned(std::move(image), orientation);
}

bool is_jpeg(std::span<const std::byte> bytes) {
  return bytes.size() >= 3 && bytes[0] == std::byte{0xff} && bytes[1] == std::byte{0xd8} && bytes[2] == std::byte{0xff};
}

}  // namespace tenon
