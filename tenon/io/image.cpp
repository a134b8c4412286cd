#include "tenon/io/image.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>

#include "tenon/core/error.h"
#include "tenon/io/files.h"
#include "tenon/io/orientation.h"

namespace tenon {
namespace {

constexpr size_t kMaxPictureBytes = size_t{1} << 30;

// The PNG library reports errors by a longjmp, which skips C++ destructors. So everything that owns memory is in these
// structs, outside the functions that call the library, and those functions have only trivial locals.
struct PngFailure {
  char message[200] = {};
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* failure = static_cast<PngFailure*>(png_get_error_ptr(png));
  std::snprintf(failure->message, sizeof failure->message, "%s", message);
  longjmp(png_jmpbuf(png), 1);
}
void on_warning(png_structp, png_const_charp) {}

struct Source {
  std::span<const std::byte> rest;
};
void read_bytes(png_structp png, png_bytep out, size_t count) {
  auto* source = static_cast<Source*>(png_get_io_ptr(png));
  if (source->rest.size() < count) png_error(png, "the file is truncated");
  std::memcpy(out, source->rest.data(), count);
  source->rest = source->rest.subspan(count);
}

struct Sink {
  std::vector<std::byte> bytes;
  bool out_of_memory = false;
};
void write_bytes(png_structp png, png_bytep data, size_t count) {
  auto* sink = static_cast<Sink*>(png_get_io_ptr(png));
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  try {
    sink->bytes.insert(sink->bytes.end(), begin, begin + count);
  } catch (const std::bad_alloc&) {
    sink->out_of_memory = true;
  }
  if (sink->out_of_memory) png_error(png, "out of memory");
}
void flush_bytes(png_structp) {}

// A libpng reader over bytes in memory.
struct PngDecoder {
  PngFailure failure;
  Source source;
  png_structp png;
  png_infop info;

  explicit PngDecoder(std::span<const std::byte> bytes)
      : source{bytes}, png(png_create_read_struct(PNG_LIBPNG_VER_STRING, &failure, on_error, on_warning)) {
    info = png ? png_create_info_struct(png) : nullptr;
  }
  ~PngDecoder() { png_destroy_read_struct(&png, &info, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;
};

// Chunks that may inflate to a thousand times their size.
constexpr unsigned char kTexts[] = "tEXt\0zTXt\0iTXt", kProfiles[] = "iCCP\0sPLT";
constexpr int kMostTexts = 16;

// Reads everything before the pixels; false (and failure.message) if the file is invalid. `with_text`: keeps texts.
bool read_header(PngDecoder& d, bool with_text) {
  if (!d.png || !d.info) return false;
  if (setjmp(png_jmpbuf(d.png))) return false;
  png_set_user_limits(d.png, kMaxImageSide, kMaxImageSide);
  png_set_chunk_malloc_max(d.png, 16 << 20);
  png_set_chunk_cache_max(d.png, kMostTexts + 2);  // libpng keeps two fewer
  png_set_keep_unknown_chunks(d.png, PNG_HANDLE_CHUNK_NEVER, kProfiles, sizeof(kProfiles) / 5);
  if (!with_text) png_set_keep_unknown_chunks(d.png, PNG_HANDLE_CHUNK_NEVER, kTexts, sizeof(kTexts) / 5);
  png_set_read_fn(d.png, &d.source, read_bytes);
  png_read_info(d.png, d.info);
  png_set_expand(d.png);
  png_set_scale_16(d.png);
  png_set_strip_alpha(d.png);
  png_set_gray_to_rgb(d.png);
  png_set_interlace_handling(d.png);
  png_read_update_info(d.png, d.info);
  return true;
}

bool read_rows(PngDecoder& d, png_bytepp rows) {
  if (setjmp(png_jmpbuf(d.png))) return false;
  png_read_image(d.png, rows);
  png_read_end(d.png, d.info);
  return true;
}

// Of the chunk eXIf, which may also follow the pixels.
int orientation_of(const PngDecoder& d) {
  png_bytep exif = nullptr;
  png_uint_32 size = 0;
  return png_get_eXIf_1(d.png, d.info, &size, &exif) ? exif_orientation({exif, size}) : kUpright;
}

// A libpng writer into memory.
struct PngEncoder {
  PngFailure failure;
  Sink sink;
  png_structp png;
  png_infop info;

  PngEncoder() : png(png_create_write_struct(PNG_LIBPNG_VER_STRING, &failure, on_error, on_warning)) {
    info = png ? png_create_info_struct(png) : nullptr;
  }
  ~PngEncoder() { png_destroy_write_struct(&png, &info); }
  PngEncoder(const PngEncoder&) = delete;
  PngEncoder& operator=(const PngEncoder&) = delete;
};

bool write_all(PngEncoder& e, const Image& image, int color, png_textp text, int count, png_bytepp rows) {
  if (!e.png || !e.info) return false;
  if (setjmp(png_jmpbuf(e.png))) return false;
  png_set_user_limits(e.png, kMaxImageSide, kMaxImageSide);
  png_set_write_fn(e.png, &e.sink, write_bytes, flush_bytes);
  png_set_IHDR(e.png, e.info, static_cast<png_uint_32>(image.width), static_cast<png_uint_32>(image.height), 8, color,
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (count) png_set_text(e.png, e.info, text, count);
  png_write_info(e.png, e.info);
  png_write_image(e.png, rows);
  png_write_end(e.png, nullptr);
  return true;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0 && c < 127; });
}

bool is_png(std::span<const std::byte> bytes) {
  return bytes.size() >= 8 && png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, 8) == 0;
}

[[noreturn]] void refuse_png(const std::string& where, const PngDecoder& d) {
  throw Error(ErrorKind::Usage, where,
              std::string("cannot read as PNG: ") + (d.failure.message[0] ? d.failure.message : "out of memory"));
}

// The first chunk begins with both sides. libpng refuses large ones too, but as "Invalid IHDR data".
void check_sides(std::span<const std::byte> bytes, const std::string& where) {
  if (bytes.size() < 24) return;  // an error that libpng names
  const auto at = [&](size_t i) { return png_get_uint_32(reinterpret_cast<png_const_bytep>(&bytes[i])); };
  check_readable(at(16), at(20), where);
}

// Reads and checks everything before the pixels.
Image without_pixels(PngDecoder& d, std::span<const std::byte> bytes, const std::string& where) {
  TENON_CHECK(Usage, is_png(bytes), where) << "is not a PNG file";
  check_sides(bytes, where);
  if (!read_header(d, false)) refuse_png(where, d);
  Image image{png_get_image_width(d.png, d.info), png_get_image_height(d.png, d.info), 3, {}};
  // Deflate compresses at most 1032 times and a pixel has at least one bit: refuses a header that claims more.
  TENON_CHECK(Usage, static_cast<size_t>(image.width * image.height) / (8 * 1032) <= bytes.size(), where)
      << "cannot read as PNG: " << image.width << "x" << image.height << " pixels in " << bytes.size() << " bytes";
  return image;
}

// The bytes of a PNG or JPEG file, read by one of two functions.
template <class Jpeg, class Png>
Image read_either(const std::filesystem::path& path, const Jpeg& jpeg, const Png& png) {
  const std::string bytes = read_argument_file(path, kMaxPictureBytes);
  const auto data = std::as_bytes(std::span(bytes));
  if (is_jpeg(data)) return jpeg(data, path.string());
  TENON_CHECK(Usage, is_png(data), path.string()) << "is neither a PNG nor a JPEG file";
  return png(data, path.string());
}

}  // namespace

void check_readable(int64_t width, int64_t height, const std::string& where) {
  TENON_CHECK(Usage, width <= kMaxImageSide && height <= kMaxImageSide, where)
      << "is " << width << "x" << height << " pixels, expected sides of at most " << kMaxImageSide;
  TENON_CHECK(Usage, width * height <= kMaxImagePixels, where)
      << "is " << width << "x" << height << " pixels, expected at most " << kMaxImagePixels << " in all";
}

Image decode_png(std::span<const std::byte> bytes, const std::string& where) {
  PngDecoder d(bytes);
  Image image = without_pixels(d, bytes, where);
  const size_t row_bytes = png_get_rowbytes(d.png, d.info);
  TENON_CHECK(Internal, row_bytes == static_cast<size_t>(image.width) * 3, where) << "unexpected PNG row size";
  image.pixels.resize(row_bytes * static_cast<size_t>(image.height));
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < image.height; ++y) rows.push_back(image.pixels.data() + static_cast<size_t>(y) * row_bytes);
  if (!read_rows(d, rows.data())) refuse_png(where, d);
  return turned(std::move(image), orientation_of(d));
}

Image read_png(const std::filesystem::path& path) {
  const std::string bytes = read_argument_file(path, kMaxPictureBytes);
  return decode_png(std::as_bytes(std::span(bytes)), path.string());
}

Image read_image(const std::filesystem::path& path) { return read_either(path, decode_jpeg, decode_png); }

Image read_image_header(const std::filesystem::path& path) {
  return read_either(path, decode_jpeg_header, [](std::span<const std::byte> bytes, const std::string& where) {
    PngDecoder d(bytes);
    return without_pixels(d, bytes, where);
  });
}

std::map<std::string, std::string> read_png_text(const std::filesystem::path& path) {
  const std::string bytes = read_argument_file(path, kMaxPictureBytes);
  TENON_CHECK(Usage, is_png(std::as_bytes(std::span(bytes))), path.string()) << "is not a PNG file";
  PngDecoder d(std::as_bytes(std::span(bytes)));
  if (!read_header(d, true)) refuse_png(path.string(), d);
  png_textp text = nullptr;
  const int count = png_get_text(d.png, d.info, &text, nullptr);
  std::map<std::string, std::string> out;
  for (int i = 0; i < count; ++i)
    out[text[i].key] = std::string(text[i].text, std::max(text[i].text_length, text[i].itxt_length));
  return out;
}

void check_writable(const Image& image, const std::string& where) {
  TENON_CHECK(Usage,
              image.width > 0 && image.height > 0 && image.width <= kMaxImageSide && image.height <= kMaxImageSide,
              where)
      << "cannot write an image of " << image.width << "x" << image.height << " pixels";
  const auto bytes = static_cast<size_t>(image.width * image.height * image.channels);
  TENON_CHECK(Usage, image.pixels.size() == bytes, where)
      << "expected " << bytes << " bytes of pixels, got " << image.pixels.size();
}

std::vector<std::byte> encode_png(const Image& image, const ImageText& text) {
  const std::string where = "png";
  TENON_CHECK(Usage, image.channels == 1 || image.channels == 3 || image.channels == 4, where)
      << "expected 1, 3 or 4 channels, got " << image.channels;
  check_writable(image, where);
  const auto row_bytes = static_cast<size_t>(image.width * image.channels);
  std::vector<png_text> chunks;
  for (const auto& [key, value] : text) {
    TENON_CHECK(Usage, !key.empty() && key.size() <= 79 && is_ascii(key), where) << "bad text key '" << key << "'";
    png_text chunk{};
    chunk.compression = is_ascii(value) ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE;
    chunk.key = const_cast<char*>(key.c_str());
    chunk.text = const_cast<char*>(value.c_str());
    (is_ascii(value) ? chunk.text_length : chunk.itxt_length) = value.size();
    chunks.push_back(chunk);
  }
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < image.height; ++y)
    rows.push_back(const_cast<png_bytep>(image.pixels.data()) + static_cast<size_t>(y) * row_bytes);
  const int color = image.channels == 1   ? PNG_COLOR_TYPE_GRAY
                    : image.channels == 3 ? PNG_COLOR_TYPE_RGB
                                          : PNG_COLOR_TYPE_RGBA;
  PngEncoder e;
  const bool done = write_all(e, image, color, chunks.data(), static_cast<int>(chunks.size()), rows.data());
  TENON_CHECK(Memory, !e.sink.out_of_memory && (done || e.failure.message[0]), where) << "out of memory";
  TENON_CHECK(Internal, done, where) << "cannot encode: " << e.failure.message;
  return std::move(e.sink.bytes);
}

void write_png(const std::filesystem::path& path, const Image& image, const ImageText& text, Overwrite overwrite) {
  write_file(path, encode_png(image, text), overwrite);
}

bool has_jpeg_name(const std::filesystem::path& path) { return has_ending(path, {".jpg", ".jpeg"}); }

std::vector<std::byte> encode_image(const std::filesystem::path& path, const Image& image, const ImageText& text) {
  return has_jpeg_name(path) ? encode_jpeg(image, text) : encode_png(image, text);
}

void write_image(const std::filesystem::path& path, const Image& image, const ImageText& text, Overwrite overwrite) {
  write_file(path, encode_image(path, image, text), overwrite);
}

}  // namespace tenon
