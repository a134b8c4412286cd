// JPEG against Pillow's decoding (tools/fixtures/io_jpeg.py), EXIF orientation, damaged files.
#include <nlohmann/json.hpp>

#include "tenon/io/image.h"
#include "tests/io/io_test_tools.h"
#include "tests/support/base64.h"
#include "tests/support/close.h"

namespace {
using namespace io_test;
using namespace tenon;
using Bytes = std::vector<std::byte>;

constexpr int kTolerance = 2;  // levels: decoders may differ in the last bit of the transform and of the colours

Bytes picture_of(const std::string& base64) {
  const std::string bytes = from_base64(base64);
  const auto all = std::as_bytes(std::span(bytes));
  return {all.begin(), all.end()};
}

nlohmann::json cases() { return nlohmann::json::parse(std::ifstream(fixture("io/jpeg.json")))["cases"]; }

Bytes file_of(const std::string& name) {
  for (const auto& c : cases())
    if (c["name"] == name) return picture_of(c["file"]);
  throw std::runtime_error("no " + name);
}

TEST(Jpeg, EqualsPillow) {
  ASSERT_GE(cases().size(), 12u);
  for (const auto& c : cases()) {
    SCOPED_TRACE(c["name"]);
    const Image image = decode_jpeg(picture_of(c["file"]), "memory");
    EXPECT_EQ(image.width, c["size"][0]);
    EXPECT_EQ(image.height, c["size"][1]);
    const auto want = c["pixels"].get<std::vector<int>>();
    ASSERT_EQ(image.pixels.size(), want.size());
    EXPECT_TRUE(close(image.pixels, want, Tolerance{kTolerance, 0}));
  }
}

TEST(Jpeg, IsKnownByItsContent) {
  TempFolder folder;
  const Bytes bytes = file_of("rgb");
  put(folder / "picture.png", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  EXPECT_EQ(read_image(folder / "picture.png"), decode_jpeg(bytes, "memory"));
  put(folder / "neither.jpg", "GIF89a");
  expect_error(ErrorKind::Usage, "neither a PNG nor a JPEG", [&] { read_image(folder / "neither.jpg"); });
  write_png(folder / "a.jpg", {1, 1, 3, {1, 2, 3}});
  EXPECT_EQ(read_image(folder / "a.jpg").pixels, (std::vector<uint8_t>{1, 2, 3}));
  for (const char* name : {"picture.png", "a.jpg"}) {
    const Image header = read_image_header(folder / name), whole = read_image(folder / name);
    EXPECT_EQ(header, (Image{whole.width, whole.height, 3, {}})) << name;
  }
  expect_error(ErrorKind::Usage, "neither a PNG nor a JPEG", [&] { read_image_header(folder / "neither.jpg"); });
}

// A picture of slow changes comes back nearly as it was, in grey and in colour.
TEST(Jpeg, IsWrittenAsItIsRead) {
  for (const int64_t channels : {1, 3}) {
    Image image{37, 21, channels, {}};
    for (int64_t i = 0; i < image.width * image.height * channels; ++i)
      image.pixels.push_back(static_cast<uint8_t>(i / channels % 37 * 3 + i % channels * 20 + i / channels / 37 * 2));
    const Image read = decode_jpeg(encode_jpeg(image), "memory");
    ASSERT_EQ(read.pixels.size(), static_cast<size_t>(37 * 21 * 3));
    std::vector<int> want;
    for (size_t i = 0; i < read.pixels.size(); ++i) want.push_back(image.pixels[channels == 1 ? i / 3 : i]);
    EXPECT_TRUE(close(read.pixels, want, Tolerance{6, 0})) << channels;
  }
  expect_error(ErrorKind::Usage, "1 or 3 channels", [] { encode_jpeg({1, 1, 4, {1, 2, 3, 4}}); });
  expect_error(ErrorKind::Usage, "bytes of pixels", [] { encode_jpeg({2, 2, 3, {1, 2, 3}}); });
}

TEST(Jpeg, SettingsAreWhereOtherToolsLook) {
  const auto text_of = [](const ImageText& text) {
    const std::vector<std::byte> bytes = encode_jpeg({1, 1, 3, {1, 2, 3}}, text);
    EXPECT_EQ(decode_jpeg(bytes, "memory").width, 1);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const std::string file = text_of({{"parameters", "a\xc3\xa9\xf0\x9f\x98\x80"}, {"tenon", "{}"}});
  // EXIF, big-endian: a directory that names one with the user comment, in UTF-16.
  const std::string exif(
      "Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x87\x69\0\x04\0\0\0\x01\0\0\0\x1a\0\0\0\0"
      "\0\x01\x92\x86\0\x07\0\0\0\x10\0\0\0\x2c\0\0\0\0UNICODE\0\0a\0\xe9\xd8\x3d\xde\x00",
      66);
  EXPECT_NE(file.find(exif), std::string::npos);
  EXPECT_NE(file.find("tenon: {}"), std::string::npos);
  const std::string longest(32000, 'x'), longer(140000, 'x');
  EXPECT_NE(text_of({{"parameters", longest}}).find("UNICODE"), std::string::npos);
  const std::string comments = text_of({{"parameters", longer}});
  EXPECT_EQ(comments.find("UNICODE"), std::string::npos);
  EXPECT_GT(comments.size(), longer.size());
  EXPECT_NE(comments.find("parameters: xxx"), std::string::npos);
}

TEST(Jpeg, FilesThatAreCutShortAreRefused) {
  for (const char* name : {"rgb", "progressive", "cmyk"}) {
    const Bytes whole = file_of(name);
    for (size_t size = 0; size + 2 < whole.size(); ++size)
      EXPECT_THROW(decode_jpeg(std::span(whole).first(size), "cut"), Error) << name << " " << size;
  }
}

TEST(Jpeg, DamageIsAnErrorOrAPicture) {
  const Bytes whole = file_of("turned 6");
  for (size_t i = 0; i < whole.size(); ++i)
    for (const int value : {0x00, 0xff, 0x12}) {
      Bytes bad = whole;
      bad[i] = static_cast<std::byte>(value);
      try {
        const Image image = decode_jpeg(bad, "bad");
        EXPECT_EQ(static_cast<int64_t>(image.pixels.size()), image.width * image.height * 3);
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::Usage);
      }
    }
}

// The size claimed by the header, in a file of a few hundred bytes.
TEST(Jpeg, AbsurdSizesAreNotBelieved) {
  Bytes bytes = file_of("grey");
  for (size_t i = 0; i + 9 < bytes.size(); ++i)
    if (bytes[i] == std::byte{0xff} && bytes[i + 1] == std::byte{0xc0}) {
      for (const size_t at : {i + 5, i + 7}) bytes[at] = std::byte{0x40}, bytes[at + 1] = std::byte{0};
      expect_error(ErrorKind::Usage, "16384x16384 pixels in", [&] { decode_jpeg(bytes, "huge"); });
      bytes[i + 6] = std::byte{1};
      expect_error(ErrorKind::Usage, "at most 268435456 in all", [&] { decode_jpeg(bytes, "huge"); });
      bytes[i + 5] = std::byte{0xff};
      expect_error(ErrorKind::Usage, "at most 32768", [&] { decode_jpeg(bytes, "huge"); });
      return;
    }
  FAIL() << "no frame header";
}

}  // namespace
