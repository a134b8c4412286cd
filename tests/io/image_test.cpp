// PNG: what is written is read, other tools' variants are read, damaged files are refused, text survives.
#include "tenon/io/image.h"

#include <png.h>

#include <cstring>

#include "io_test_tools.h"
#include "tenon/io/json.h"

namespace {
using namespace io_test;
using namespace tenon;

Image gradient(int64_t width, int64_t height, int64_t channels) {
  Image image{width, height, channels, {}};
  for (int64_t i = 0; i < width * height * channels; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 7));
  return image;
}

TEST(Png, RoundTrip) {
  for (const auto& [w, h] : {std::pair{1, 1}, {7, 5}, {64, 33}}) {
    const Image image = gradient(w, h, 3);
    EXPECT_EQ(decode_png(encode_png(image), "memory"), image);
  }
}

TEST(Png, GreyBecomesThreeChannelsAndAlphaIsDropped) {
  const Image grey = decode_png(encode_png(gradient(2, 1, 1)), "memory");
  EXPECT_EQ(grey.pixels, (std::vector<uint8_t>{0, 0, 0, 7, 7, 7}));
  const Image alpha = decode_png(encode_png(gradient(2, 1, 4)), "memory");
  EXPECT_EQ(alpha.pixels, (std::vector<uint8_t>{0, 7, 14, 28, 35, 42}));
}

// Written through libpng directly: the kinds that encode_png does not make.
std::vector<std::byte> foreign_png(int bit_depth, int color, int interlace, const std::vector<uint8_t>& rows, int w,
                                   int h) {
  std::vector<std::byte> out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &out,
      [](png_structp p, png_bytep data, size_t n) {
        auto* sink = static_cast<std::vector<std::byte>*>(png_get_io_ptr(p));
        const auto* begin = reinterpret_cast<const std::byte*>(data);
        sink->insert(sink->end(), begin, begin + n);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(w), static_cast<png_uint_32>(h), bit_depth, color, interlace, 0, 0);
  const png_color palette[4] = {{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {9, 8, 7}};
  if (color == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette, 4);
  png_set_interlace_handling(png);
  png_write_info(png, info);
  std::vector<png_bytep> pointers;
  for (int y = 0; y < h; ++y)
    pointers.push_back(const_cast<png_bytep>(rows.data()) +
                       rows.size() / static_cast<size_t>(h) * static_cast<size_t>(y));
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

TEST(Png, PaletteSixteenBitOneBitAndInterlaced) {
  const Image palette = decode_png(foreign_png(2, PNG_COLOR_TYPE_PALETTE, 0, {0b00011011}, 4, 1), "memory");
  EXPECT_EQ(palette.pixels, (std::vector<uint8_t>{255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 8, 7}));
  const Image deep = decode_png(foreign_png(16, PNG_COLOR_TYPE_RGB, 0, {0xff, 0xff, 0x80, 0x80, 0, 0}, 1, 1), "memory");
  EXPECT_EQ(deep.pixels, (std::vector<uint8_t>{255, 128, 0}));
  const Image bits = decode_png(foreign_png(1, PNG_COLOR_TYPE_GRAY, 0, {0b10100000}, 3, 1), "memory");
  EXPECT_EQ(bits.pixels, (std::vector<uint8_t>{255, 255, 255, 0, 0, 0, 255, 255, 255}));
  const Image plain = gradient(9, 9, 3);
  EXPECT_EQ(decode_png(foreign_png(8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_ADAM7, plain.pixels, 9, 9), "memory"), plain);
}

TEST(Png, DamagedFilesAreRefused) {
  expect_error(ErrorKind::Usage, "[memory] is not a PNG file", [] { decode_png({}, "memory"); });
  const std::string text = "GIF89a, or anything else";
  expect_error(ErrorKind::Usage, "is not a PNG file", [&] { decode_png(std::as_bytes(std::span(text)), "memory"); });
  const std::vector<std::byte> good = encode_png(gradient(20, 20, 3), {{"key", "value"}});
  for (size_t n = 8; n < good.size() - 12; ++n)  // the last 12 bytes are the end chunk
    EXPECT_EQ(error_of([&] { decode_png(std::span(good).first(n), "memory"); }).kind(), ErrorKind::Usage) << n;
  std::vector<std::byte> flipped = good;
  flipped[20] ^= std::byte{1};  // in the header, whose checksum then fails
  expect_error(ErrorKind::Usage, "cannot read as PNG: IHDR: CRC error", [&] { decode_png(flipped, "memory"); });
}

// A correct header that claims w x h grey pixels, with almost no data behind it.
std::vector<std::byte> claims(uint32_t w, uint32_t h) {
  std::vector<std::byte> bytes = encode_png(gradient(1, 1, 1));
  const auto put32 = [&](size_t at, uint32_t value) {
    for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::byte>(value >> (24 - 8 * i));
  };
  put32(16, w);
  put32(20, h);
  uint32_t crc = ~0u;  // of the header's name and 13 bytes
  for (size_t i = 12; i < 29; ++i) {
    crc ^= static_cast<uint32_t>(bytes[i]);
    for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ ((crc & 1) ? 0xedb88320u : 0u);
  }
  put32(29, ~crc);
  return bytes;
}

TEST(Png, AbsurdSizesAreRefusedBeforeMemoryIsTaken) {
  expect_error(ErrorKind::Usage, "cannot read as PNG: Invalid IHDR data",
               [] { decode_png(claims(40000, 4), "memory"); });
  expect_error(ErrorKind::Usage, "30000x30000 pixels in", [] { decode_png(claims(30000, 30000), "memory"); });
  EXPECT_EQ(decode_png(claims(1, 1), "memory").pixels.size(), 3u);
}

TEST(Png, ReadingFromDisk) {
  const TempFolder folder;
  expect_error(ErrorKind::Usage, "cannot open for reading", [&] { read_png(folder / "no.png"); });
  expect_error(ErrorKind::Usage, "expected a regular file", [&] { read_png(folder.path()); });
  put(folder / "text.png", "hello");
  expect_error(ErrorKind::Usage, "is not a PNG file", [&] { read_png_text(folder / "text.png"); });
}

TEST(Png, WritingWithText) {
  const TempFolder folder;
  const Image image = gradient(8, 8, 3);
  const ImageText text = {{"parameters", "a cat\nSteps: 20"}, {"tenon", R"({"prompt":"日本 😀"})"}};
  write_png(folder / "a.png", image, text, Overwrite::No);
  EXPECT_EQ(read_png(folder / "a.png"), image);
  const auto read = read_png_text(folder / "a.png");
  EXPECT_EQ(read.at("parameters"), text[0].second);
  EXPECT_EQ(read.at("tenon"), text[1].second);
  expect_error(ErrorKind::Usage, "the file exists already",
               [&] { write_png(folder / "a.png", image, {}, Overwrite::No); });
  EXPECT_NO_THROW(write_png(folder / "a.png", image, {}, Overwrite::Yes));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Png, BadImagesAreRefused) {
  expect_error(ErrorKind::Usage, "expected 1, 3 or 4 channels, got 2", [] { encode_png(gradient(2, 2, 2)); });
  expect_error(ErrorKind::Usage, "cannot write an image of 0x2", [] { encode_png(Image{0, 2, 3, {}}); });
  expect_error(ErrorKind::Usage, "cannot write an image of 40000x1", [] { encode_png(Image{40000, 1, 3, {}}); });
  expect_error(ErrorKind::Usage, "expected 12 bytes of pixels, got 3", [] { encode_png(Image{2, 2, 3, {1, 2, 3}}); });
  expect_error(ErrorKind::Usage, "bad text key ''", [] { encode_png(gradient(1, 1, 3), {{"", "x"}}); });
  expect_error(ErrorKind::Usage, "bad text key 'ä'", [] { encode_png(gradient(1, 1, 3), {{"ä", "x"}}); });
}

TEST(ImageTextForm, ParametersAndJson) {
  const Settings settings = {{"Steps", "20"}, {"Sampler", "Euler"}, {"Model", "a, b: \"c\""}};
  EXPECT_EQ(a1111_parameters("a cat", "", settings), "a cat\nSteps: 20, Sampler: Euler, Model: \"a, b: \\\"c\\\"\"");
  EXPECT_EQ(a1111_parameters("a cat", "blurry", {{"Seed", "1"}}), "a cat\nNegative prompt: blurry\nSeed: 1");
  const auto parsed =
      nlohmann::ordered_json::parse(settings_json({{"seed", "5"}, {"prompt", "\"é\""}}, {{"timings", "[1,2]"}}));
  EXPECT_EQ(parsed.dump(), R"({"seed":"5","prompt":"\"é\"","timings":[1,2]})");
  EXPECT_NO_THROW(settings_json({{"prompt", "\xff"}}));
}

}  // namespace
