// PNG: files round-trip, other tools' variants are read, damaged files are refused, text is kept.
#include "tenon/io/image.h"

#include "tenon/io/json.h"
#include "tests/io/io_test_tools.h"

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

// A hand-made PNG, for kinds that encode_png does not write: the rows go into one uncompressed deflate block.
class HandMade {
 public:
  HandMade(uint32_t w, uint32_t h, int bits, int color, int interlace) {
    put({0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'});
    std::vector<uint8_t> header = big_endian(w);
    append(header, big_endian(h));
    append(header, {static_cast<uint8_t>(bits), static_cast<uint8_t>(color), 0, 0, static_cast<uint8_t>(interlace)});
    chunk("IHDR", header);
  }
  HandMade& chunk(const std::string& name, const std::vector<uint8_t>& content) {
    std::vector<uint8_t> checked(name.begin(), name.end());
    append(checked, content);
    uint32_t crc = ~0u;
    for (uint8_t b : checked) {
      crc ^= b;
      for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ ((crc & 1) ? 0xedb88320u : 0u);
    }
    put(big_endian(static_cast<uint32_t>(content.size())));
    put(checked);
    put(big_endian(~crc));
    return *this;
  }
  /// Rows with their filter bytes; then the end.
  std::vector<std::byte> finish(const std::vector<uint8_t>& rows) {
    const auto n = static_cast<uint32_t>(rows.size());
    std::vector<uint8_t> stream = {0x78,
                                   0x01,
                                   0x01,
                                   static_cast<uint8_t>(n),
                                   static_cast<uint8_t>(n >> 8),
                                   static_cast<uint8_t>(~n),
                                   static_cast<uint8_t>(~n >> 8)};
    append(stream, rows);
    uint32_t a = 1, b = 0;  // Adler-32
    for (uint8_t r : rows) a = (a + r) % 65521, b = (b + a) % 65521;
    append(stream, big_endian((b << 16) | a));
    chunk("IDAT", stream).chunk("IEND", {});
    return bytes_;
  }

 private:
  static std::vector<uint8_t> big_endian(uint32_t v) {
    return {static_cast<uint8_t>(v >> 24), static_cast<uint8_t>(v >> 16), static_cast<uint8_t>(v >> 8),
            static_cast<uint8_t>(v)};
  }
  static void append(std::vector<uint8_t>& to, const std::vector<uint8_t>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }
  void put(const std::vector<uint8_t>& from) {
    for (uint8_t b : from) bytes_.push_back(static_cast<std::byte>(b));
  }
  std::vector<std::byte> bytes_;
};
constexpr int kGrey = 0, kRgb = 2, kPalette = 3;

TEST(Png, PaletteSixteenBitOneBitAndInterlaced) {
  HandMade palette(4, 1, 2, kPalette, 0);
  palette.chunk("PLTE", {255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 8, 7});
  EXPECT_EQ(decode_png(palette.finish({0, 0b00011011}), "memory").pixels,
            (std::vector<uint8_t>{255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 8, 7}));
  EXPECT_EQ(decode_png(HandMade(1, 1, 16, kRgb, 0).finish({0, 0xff, 0xff, 0x80, 0x80, 0, 0}), "memory").pixels,
            (std::vector<uint8_t>{255, 128, 0}));
  EXPECT_EQ(decode_png(HandMade(3, 1, 1, kGrey, 0).finish({0, 0b10100000}), "memory").pixels,
            (std::vector<uint8_t>{255, 255, 255, 0, 0, 0, 255, 255, 255}));
  // Adam7 sends the left pixel of a 2x1 image in its first pass and the right one in its sixth.
  EXPECT_EQ(decode_png(HandMade(2, 1, 8, kRgb, 1).finish({0, 1, 2, 3, 0, 4, 5, 6}), "memory").pixels,
            (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
}

// What ImageMagick and phones write: the camera's orientation in a chunk of its own, before or after the pixels.
TEST(Png, IsTurnedAsItsExifSays) {
  // Rows of a picture of 3 x 2 grey pixels, upright, for each orientation.
  const std::vector<std::vector<std::vector<uint8_t>>> upright = {
      {{0, 1, 2}, {3, 4, 5}},   {{2, 1, 0}, {5, 4, 3}},   {{5, 4, 3}, {2, 1, 0}},   {{3, 4, 5}, {0, 1, 2}},
      {{0, 3}, {1, 4}, {2, 5}}, {{3, 0}, {4, 1}, {5, 2}}, {{5, 2}, {4, 1}, {3, 0}}, {{2, 5}, {1, 4}, {0, 3}}};
  for (uint8_t o = 1; o <= 8; ++o) {
    Image expected{std::ssize(upright[o - 1][0]), std::ssize(upright[o - 1]), 3, {}};
    for (const auto& row : upright[o - 1])
      for (uint8_t v : row) expected.pixels.insert(expected.pixels.end(), 3, v);
    const std::vector<uint8_t> big = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0,
                                      3,   0,   0, 0,  1, 0, o, 0, 0, 0, 0, 0,    0};
    const std::vector<uint8_t> small = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3,
                                        0,   1,   0,  0, 0, o, 0, 0, 0, 0, 0,    0, 0};
    for (const auto& exif : {big, small}) {
      const std::vector<uint8_t> rows = {0, 0, 1, 2, 0, 3, 4, 5};
      EXPECT_EQ(decode_png(HandMade(3, 2, 8, kGrey, 0).chunk("eXIf", exif).finish(rows), "memory"), expected) << int{o};
    }
  }
  const std::vector<uint8_t> broken = {'M', 'M', 0, 42, 0xff, 0xff, 0xff, 0xff};
  EXPECT_EQ(decode_png(HandMade(1, 1, 8, kGrey, 0).chunk("eXIf", broken).finish({0, 9}), "memory").width, 1);
}

TEST(Png, DamagedFilesAreRefused) {
  expect_error(ErrorKind::Usage, "[memory] is not a PNG file", [] { decode_png({}, "memory"); });
  const std::string text = "GIF89a, or anything else";
  expect_error(ErrorKind::Usage, "is not a PNG file", [&] { decode_png(std::as_bytes(std::span(text)), "memory"); });
  const std::vector<std::byte> good = encode_png(gradient(20, 20, 3), {{"key", "value"}});
  for (size_t n = 8; n < good.size() - 12; ++n)  // the last 12 bytes are the end chunk
    EXPECT_EQ(error_of([&] { decode_png(std::span(good).first(n), "memory"); }).kind(), ErrorKind::Usage) << n;
  std::vector<std::byte> flipped = good;
  flipped[23] ^= std::byte{1};  // in the header, whose checksum then fails
  expect_error(ErrorKind::Usage, "cannot read as PNG: IHDR: CRC error", [&] { decode_png(flipped, "memory"); });
}

TEST(Png, AbsurdSizesAreRefusedBeforeMemoryIsTaken) {
  const auto decode = [](uint32_t side) {
    return [=] { decode_png(HandMade(side, side, 8, kGrey, 0).finish({0, 1}), "x"); };
  };
  expect_error(ErrorKind::Usage, "[x] is 40000x40000 pixels, expected sides of at most 32768", decode(40000));
  expect_error(ErrorKind::Usage, "[x] is 16385x16385 pixels, expected at most 268435456 in all", decode(16385));
  expect_error(ErrorKind::Usage, "cannot read as PNG: 16384x16384 pixels in 70 bytes", decode(16384));
  EXPECT_NO_THROW(decode(1)());
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
  const PictureSettings settings = {{"Steps", "20"}, {"Sampler", "Euler"}, {"Model", "a, b: \"c\""}};
  EXPECT_EQ(a1111_parameters("a cat", "", settings), "a cat\nSteps: 20, Sampler: Euler, Model: \"a, b: \\\"c\\\"\"");
  EXPECT_EQ(a1111_parameters("a cat", "blurry", {{"Seed", "1"}}), "a cat\nNegative prompt: blurry\nSeed: 1");
  const auto parsed =
      nlohmann::ordered_json::parse(settings_json({{"seed", "5"}, {"prompt", "\"é\""}}, {{"timings", "[1,2]"}}));
  EXPECT_EQ(parsed.dump(), R"({"seed":"5","prompt":"\"é\"","timings":[1,2]})");
  EXPECT_NO_THROW(settings_json({{"prompt", "\xff"}}));
}

}  // namespace
