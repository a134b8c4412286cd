// JPEG through libjpeg: reads any colour space to three channels of 8 bits, rotated as its EXIF orientation says;
// writes grey and RGB.
#include <cstddef>
#include <cstdio>
// jpeglib.h needs size_t and FILE to be declared.
#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
#include <cstdlib>
#include <utility>

#include "tenon/core/error.h"
#include "tenon/core/utf8.h"
#include "tenon/io/image.h"
#include "tenon/io/orientation.h"

namespace tenon {
namespace {

constexpr int kMaxScans = 500;            // a small progressive file could ask for thousands of passes over all blocks
constexpr int64_t kPixelsAByte = 8 * 64;  // Huffman codes take at least one bit per block of 8 x 8 pixels
constexpr unsigned kExifMarker = JPEG_APP0 + 1, kWholeMarker = 0xffff;
constexpr std::string_view kExif("Exif\0\0", 6);
constexpr size_t kMaxMarkerBytes = 65533, kMaxCommentUnits = 32000;
constexpr int kQuality = 95;

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

struct JpegEncoder {
  JpegFailure failure;
  jpeg_compress_struct info{};
  unsigned char* bytes = nullptr;  // the library's
  unsigned long size = 0;
  bool made = false;

  JpegEncoder() {
    info.err = jpeg_std_error(&failure.base);
    failure.base.error_exit = fail;
  }
  ~JpegEncoder() {
    if (made) jpeg_destroy_compress(&info);
    std::free(bytes);
  }
  JpegEncoder(const JpegEncoder&) = delete;
  JpegEncoder& operator=(const JpegEncoder&) = delete;
};

using Marker = std::pair<int, std::string>;

bool write_all(JpegEncoder& e, const Image& image, const std::vector<Marker>& markers) {
  if (setjmp(e.failure.jump)) return false;
  jpeg_create_compress(&e.info);
  e.made = true;
  jpeg_mem_dest(&e.info, &e.bytes, &e.size);
  e.info.image_width = static_cast<JDIMENSION>(image.width);
  e.info.image_height = static_cast<JDIMENSION>(image.height);
  e.info.input_components = static_cast<int>(image.channels);
  e.info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&e.info);
  jpeg_set_quality(&e.info, kQuality, TRUE);
  e.info.optimize_coding = TRUE;
  e.info.comp_info[0].h_samp_factor = e.info.comp_info[0].v_samp_factor = 1;
  jpeg_start_compress(&e.info, TRUE);
  for (const Marker& m : markers)
    jpeg_write_marker(&e.info, m.first, reinterpret_cast<const JOCTET*>(m.second.data()),
                      static_cast<unsigned>(m.second.size()));
  while (e.info.next_scanline < e.info.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(image.pixels.data()) +
                   static_cast<size_t>(e.info.next_scanline) * static_cast<size_t>(image.width * image.channels);
    jpeg_write_scanlines(&e.info, &row, 1);
  }
  jpeg_finish_compress(&e.info);
  return true;
}

// A number's lowest bytes, the highest first, as everywhere in the EXIF block below.
std::string bytes_of(size_t number, int count) {
  std::string out;
  for (int i = count - 1; i >= 0; --i) out += static_cast<char>(number >> (8 * i) & 0xff);
  return out;
}

std::string utf16(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const uint32_t point = next_code_point(text, at);
    out += point < 0x10000 ? bytes_of(point, 2)
                           : bytes_of(0xd800 + ((point - 0x10000) >> 10), 2) + bytes_of(0xdc00 + (point & 0x3ff), 2);
  }
  return out;
}

// A TIFF structure of two directories: the first has only the second's place, which has only the comment.
std::string exif_with_comment(const std::string& units) {
  const std::string value = std::string("UNICODE\0", 8) + units;
  constexpr size_t kDirectory = 2 + 12 + 4, kFirst = 8, kSecond = kFirst + kDirectory;
  const auto directory = [](size_t tag, size_t type, size_t count, size_t at) {
    return bytes_of(1, 2) + bytes_of(tag, 2) + bytes_of(type, 2) + bytes_of(count, 4) + bytes_of(at, 4) +
           bytes_of(0, 4);
  };
  return std::string(kExif) + "MM" + bytes_of(42, 2) + bytes_of(kFirst, 4) + directory(0x8769, 4, 1, kSecond) +
         directory(0x9286, 7, value.size(), kSecond + kDirectory) + value;
}

std::vector<Marker> markers_of(const ImageText& text) {
  std::vector<Marker> out;
  for (const auto& [key, value] : text) {
    const std::string units = key == kParameters ? utf16(value) : std::string();
    if (!units.empty() && units.size() / 2 <= kMaxCommentUnits) {
      out.insert(out.begin(), {kExifMarker, exif_with_comment(units)});
      continue;
    }
    std::string comment = key;
    comment.append(": ").append(value);
    for (size_t at = 0; at < comment.size(); at += kMaxMarkerBytes)
      out.emplace_back(JPEG_COM, comment.substr(at, kMaxMarkerBytes));
  }
  return out;
}

// Reads and checks everything before the pixels.
Image without_pixels(JpegDecoder& d, std::span<const std::byte> bytes, const std::string& where) {
  TENON_CHECK(Usage, is_jpeg(bytes), where) << "is not a JPEG file";
  if (!read_header(d, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size())) refuse(where, d);
  Image image{d.info.image_width, d.info.image_height, 3, {}};
  check_readable(image.width, image.height, where);
  TENON_CHECK(Usage, image.width * image.height / kPixelsAByte <= static_cast<int64_t>(bytes.size()), where)
      << "cannot read as JPEG: " << image.width << "x" << image.height << " pixels in " << bytes.size() << " bytes";
  return image;
}

}  // namespace

Image decode_jpeg_header(std::span<const std::byte> bytes, const std::string& where) {
  JpegDecoder d;
  return without_pixels(d, bytes, where);
}

Image decode_jpeg(std::span<const std::byte> bytes, const std::string& where) {
  JpegDecoder d;
  Image image = without_pixels(d, bytes, where);
  const bool four = d.info.out_color_space == JCS_CMYK;
  const int orientation = orientation_of(d.info);  // decoding frees the markers
  const size_t row_bytes = static_cast<size_t>(image.width) * (four ? 4 : 3);
  image.pixels.resize(row_bytes * static_cast<size_t>(image.height));
  if (!read_rows(d, image.pixels.data(), row_bytes)) refuse(where, d);
  if (four) image.pixels = rgb_of_cmyk(image.pixels, d.info.saw_Adobe_marker);
  return turned(std::move(image), orientation);
}

std::vector<std::byte> encode_jpeg(const Image& image, const ImageText& text) {
  const std::string where = "jpeg";
  TENON_CHECK(Usage, image.channels == 1 || image.channels == 3, where)
      << "expected 1 or 3 channels, got " << image.channels;
  check_writable(image, where);
  const std::vector<Marker> markers = markers_of(text);
  JpegEncoder e;
  const bool done = write_all(e, image, markers);
  if (!done) e.bytes = nullptr;  // says where the memory is only at the end; what was there first may be freed
  TENON_CHECK(Memory, done, where) << "cannot encode: " << e.failure.message;
  const auto* first = reinterpret_cast<const std::byte*>(e.bytes);
  return {first, first + e.size};
}

bool is_jpeg(std::span<const std::byte> bytes) {
  return bytes.size() >= 3 && bytes[0] == std::byte{0xff} && bytes[1] == std::byte{0xd8} && bytes[2] == std::byte{0xff};
}

}  // namespace tenon
