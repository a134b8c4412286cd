#include "tenon/io/image_resize.h"

#include <algorithm>
#include <cmath>

#include "tenon/core/error.h"

namespace tenon {
namespace {

constexpr int kFractionBits = 22;
constexpr double kSupport = 2;

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

// The samples that one output reads, and their weights.
struct Taps {
  int64_t first = 0;
  std::vector<int32_t> weights;
};

std::vector<Taps> taps_of(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), widened = std::max(scale, 1.0);
  const double before = kSupport * widened - 0.5, behind = kSupport * widened + 0.5;
  std::vector<Taps> out(static_cast<size_t>(to));
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(centre - before), 0);
    const int64_t end = std::min(static_cast<int64_t>(centre + behind), from);
    std::vector<double> weights;
    double total = 0;
    for (int64_t j = first; j < end; ++j) {
      weights.push_back(cubic((static_cast<double>(j) - centre + 0.5) / widened));
      total += weights.back();
    }
    Taps& t = out[static_cast<size_t>(i)];
    t.first = first;
    for (const double w : weights)
      t.weights.push_back(static_cast<int32_t>(std::lround(w / total * (int64_t{1} << kFractionBits))));
  }
  return out;
}

// `lines` lines of samples, `sample` elements from one sample to the next and `line` from one line to the next.
struct Pass {
  int64_t lines, line_in, line_out, sample;
};

void run(const Pass& p, const std::vector<Taps>& taps, const uint8_t* in, uint8_t* out) {
  for (int64_t line = 0; line < p.lines; ++line)
    for (size_t i = 0; i < taps.size(); ++i)
      for (int64_t c = 0; c < p.sample; ++c) {
        int64_t sum = int64_t{1} << (kFractionBits - 1);
        const uint8_t* at = in + line * p.line_in + taps[i].first * p.sample + c;
        for (const int32_t w : taps[i].weights) {
          sum += int64_t{w} * *at;
          at += p.sample;
        }
        out[line * p.line_out + static_cast<int64_t>(i) * p.sample + c] =
            static_cast<uint8_t>(std::clamp<int64_t>(sum >> kFractionBits, 0, 255));
      }
}

}  // namespace

Image resize_bicubic(const Image& image, int64_t width, int64_t height) {
  TENON_CHECK(Usage, width > 0 && height > 0 && width <= kMaxImageSide && height <= kMaxImageSide, "picture")
      << "cannot be scaled to " << width << "x" << height << "; sides are 1 to " << kMaxImageSide;
  Image wide = image;
  if (width != image.width) {
    wide.width = width;
    wide.pixels.assign(static_cast<size_t>(width * image.height * image.channels), 0);
    run({image.height, image.width * image.channels, width * image.channels, image.channels},
        taps_of(image.width, width), image.pixels.data(), wide.pixels.data());
  }
  if (height == image.height) return wide;
  Image out = wide;
  out.height = height;
  out.pixels.assign(static_cast<size_t>(width * height * image.channels), 0);
  // Down the rows a sample is a whole row.
  run({1, 0, 0, width * image.channels}, taps_of(image.height, height), wide.pixels.data(), out.pixels.data());
  return out;
}

Image crop(const Image& image, int64_t left, int64_t top, int64_t width, int64_t height) {
  Image out{width, height, image.channels, {}};
  out.pixels.assign(static_cast<size_t>(width * height * image.channels), 0);
  const int64_t begin = std::max<int64_t>(-left, 0), end = std::min(width, image.width - left);
  for (int64_t y = std::max<int64_t>(-top, 0); y < std::min(height, image.height - top) && begin < end; ++y)
    std::copy_n(image.pixels.begin() + ((y + top) * image.width + left + begin) * image.channels,
                (end - begin) * image.channels, out.pixels.begin() + (y * width + begin) * image.channels);
  return out;
}

}  // namespace tenon
