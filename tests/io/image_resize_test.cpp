// Resizing against Pillow, byte for byte; cropping; .npy files.
#include "tenon/io/image_resize.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tenon/core/error.h"
#include "tenon/io/npy.h"
#include "tests/io/io_test_tools.h"

namespace tenon {
namespace {

// The picture of tools/fixtures/io_resize.py.
Image picture(int64_t width, int64_t height) {
  Image image{width, height, 3, {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c)
        image.pixels.push_back(static_cast<uint8_t>((x * x * 7 + y * 13 + c * 50 + x * y % 11 * 20) % 256));
  return image;
}

nlohmann::json recorded() {
  return nlohmann::json::parse(std::ifstream(TENON_SOURCE_DIR "/tests/fixtures/io/resize.json"));
}

void expect_equal(const Image& out, const nlohmann::json& c) {
  EXPECT_EQ(out.width, c["to"][0]);
  EXPECT_EQ(out.height, c["to"][1]);
  EXPECT_EQ(out.pixels, c["pixels"].get<std::vector<uint8_t>>()) << c["from"] << " to " << c["to"];
}

TEST(Resize, EqualsPillow) {
  const nlohmann::json all = recorded();
  ASSERT_GE(all["cases"].size(), 12u);
  for (const auto& c : all["cases"]) {
    const Resampling kernel = c["kernel"] == "lanczos" ? Resampling::Lanczos : Resampling::Bicubic;
    expect_equal(resize(picture(c["from"][0], c["from"][1]), c["to"][0], c["to"][1], kernel), c);
  }
}

TEST(Resize, TheSameSizeIsTheSamePicture) {
  EXPECT_EQ(resize(picture(7, 5), 7, 5, Resampling::Bicubic), picture(7, 5));
}

TEST(Resize, RefusesAbsurdSizes) {
  EXPECT_THROW(resize(picture(4, 4), 0, 4, Resampling::Bicubic), Error);
  EXPECT_THROW(resize(picture(4, 4), 4, kMaxImageSide + 1, Resampling::Lanczos), Error);
  Image short_of_pixels = picture(4, 4);
  short_of_pixels.pixels.pop_back();
  EXPECT_THROW(resize(short_of_pixels, 2, 2, Resampling::Bicubic), Error);
  EXPECT_THROW(fit(short_of_pixels, 4, 4, ResizeMode::Crop), Error);
  EXPECT_THROW(fit(Image{0, 4, 3, {}}, 2, 2, ResizeMode::Crop), Error);
}

TEST(Fit, EqualsTheWebUi) {
  const nlohmann::json all = recorded();
  ASSERT_GE(all["fits"].size(), 12u);
  for (const auto& c : all["fits"]) {
    SCOPED_TRACE(c["mode"]);
    expect_equal(fit(picture(c["from"][0], c["from"][1]), c["to"][0], c["to"][1], parse_resize_mode(c["mode"])), c);
  }
}

TEST(Fit, PicturesTooElongatedToBeCropped) {
  expect_error(ErrorKind::Usage, "is 4000x8, too elongated to cover 512x512: scaled, it would be 256000x512",
               [] { fit(picture(4000, 8), 512, 512, ResizeMode::Crop); });
}

TEST(Fit, NamesOfModes) {
  for (const std::string& name : resize_mode_names()) EXPECT_EQ(name_of(parse_resize_mode(name)), name);
  EXPECT_THROW(parse_resize_mode("squeeze"), Error);
}

TEST(Crop, CutsOutAndFillsWithBlack) {
  const Image whole = picture(6, 4), part = crop(whole, 2, 1, 3, 2);
  EXPECT_EQ(part.width, 3);
  for (int64_t y = 0; y < 2; ++y)
    for (int64_t i = 0; i < 9; ++i)
      EXPECT_EQ(part.pixels[static_cast<size_t>(y * 9 + i)], whole.pixels[static_cast<size_t>((y + 1) * 18 + 6 + i)]);
  const Image larger = crop(whole, -1, -1, 8, 6);
  EXPECT_EQ(larger.pixels[0], 0);
  EXPECT_EQ(larger.pixels[static_cast<size_t>((8 + 1) * 3)], whole.pixels[0]);
  EXPECT_EQ(larger.pixels.back(), 0);
}

TEST(Npy, HeaderAndValues) {
  const auto folder = std::filesystem::temp_directory_path() / ("tenon-npy-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::vector<float> values{1, -2.5f, 3, 4, 5, 6};
  write_npy(folder / "a.npy", {2, 3}, values, Overwrite::No);
  const std::string bytes = read_file(folder / "a.npy");
  const size_t header = static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ((10 + header) % 64, 0u);
  EXPECT_NE(bytes.find("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"), std::string::npos);
  ASSERT_EQ(bytes.size(), 10 + header + 24);
  std::vector<float> back(6);
  std::memcpy(back.data(), bytes.data() + 10 + header, 24);
  EXPECT_EQ(back, values);
  EXPECT_THROW(write_npy(folder / "a.npy", {6}, values, Overwrite::No), Error);
  EXPECT_THROW(write_npy(folder / "b.npy", {5}, values, Overwrite::No), Error);
  write_npy(folder / "c.npy", {6}, values, Overwrite::No);
  EXPECT_NE(read_file(folder / "c.npy").find("(6, )"), std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tenon
