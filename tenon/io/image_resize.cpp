#include "tenon/io/image_resize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "tenon/core/error.h"
#include "tenon/core/similar.h"

namespace tenon {
namespace {

constexpr int kFractionBits = 22;

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

double sinc(double x) { return x == 0 ? 1 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x); }
double lanczos(double x) { return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0; }

// A kernel and its support.
struct Kernel {
  double (*at)(double);
  double support;
};
Kernel kernel_of(Resampling kernel) { return kernel == Resampling::Bicubic ? Kernel{cubic, 2} : Kernel{lanczos, 3}; }

// The samples that one output reads, and their weights.
struct Taps {
  int64_t first = 0;
  std::vector<int32_t> weights;
};

// The taps of the output sample centred at `centre`.
Taps taps_at(double centre, int64_t from, double widened, Kernel kernel) {
  const double before = kernel.support * widened - 0.5, behind = kernel.support * widened + 0.5;
  Taps out;
  out.first = std::max<int64_t>(static_cast<int64_t>(centre - before), 0);
  const int64_t end = std::min(static_cast<int64_t>(centre + behind), from);
  std::vector<double> weights;
  double total = 0;
  for (int64_t j = out.first; j < end; ++j) {
    weights.push_back(kernel.at((static_cast<double>(j) - centre + 0.5) / widened));
    total += weights.back();
  }
  for (const double w : weights)
    out.weights.push_back(static_cast<int32_t>(std::lround(w / total * (int64_t{1} << kFractionBits))));
  return out;
}

std::vector<Taps> taps_of(int64_t from, int64_t to, Kernel kernel) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), widened = std::max(scale, 1.0);
  std::vector<Taps> out;
  for (int64_t i = 0; i < to; ++i)
    out.push_back(taps_at((static_cast<double>(i) + 0.5) * scale, from, widened, kernel));
  return out;
}

// `lines` lines of samples; strides of `sample` elements between samples, and of line_in and line_out between lines.
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

void check_pixels(const Image& image) {
  const bool good = image.width > 0 && image.height > 0 && image.channels > 0 &&
                    std::ssize(image.pixels) == image.width * image.height * image.channels;
  TENON_CHECK(Usage, good, "picture") << "of " << image.width << "x" << image.height << " pixels and " << image.channels
                                      << " channels holds " << image.pixels.size() << " bytes";
}

}  // namespace

Image resize(const Image& image, int64_t width, int64_t height, Resampling kernel) {
  check_pixels(image);
  TENON_CHECK(Usage, width > 0 && height > 0 && width <= kMaxImageSide && height <= kMaxImageSide, "picture")
      << "cannot be scaled to " << width << "x" << height << "; expected sides from 1 to " << kMaxImageSide;
  Image wide = image;
  if (width != image.width) {
    wide.width = width;
    wide.pixels.assign(static_cast<size_t>(width * image.height * image.channels), 0);
    run({image.height, image.width * image.channels, width * image.channels, image.channels},
        taps_of(image.width, width, kernel_of(kernel)), image.pixels.data(), wide.pixels.data());
  }
  if (height == image.height) return wide;
  Image out = wide;
  out.height = height;
  out.pixels.assign(static_cast<size_t>(width * height * image.channels), 0);
  // Vertically, a sample is a whole row.
  run({1, 0, 0, width * image.channels}, taps_of(image.height, height, kernel_of(kernel)), wide.pixels.data(),
      out.pixels.data());
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

namespace {
constexpr std::array<const char*, 3> kModeNames = {"stretch", "crop", "fill"};

// One row of a picture as bicubic resampling gives it at the upper or lower edge, as in the web UI.
Image edge_row(const Image& image, bool lower) {
  const double centre = lower ? static_cast<double>(image.height) : 0;
  const std::vector<Taps> taps{taps_at(centre, image.height, 1, kernel_of(Resampling::Bicubic))};
  const int64_t row = image.width * image.channels;
  Image out{image.width, 1, image.channels, std::vector<uint8_t>(static_cast<size_t>(row))};
  run({1, 0, 0, row}, taps, image.pixels.data(), out.pixels.data());
  return out;
}

Image transposed(const Image& image) {
  Image out{image.height, image.width, image.channels, {}};
  out.pixels.reserve(image.pixels.size());
  for (int64_t x = 0; x < image.width; ++x)
    for (int64_t y = 0; y < image.height; ++y) {
      const auto at = image.pixels.begin() + (y * image.width + x) * image.channels;
      out.pixels.insert(out.pixels.end(), at, at + image.channels);
    }
  return out;
}

// The picture placed after `top` rows, with its edge rows repeated above and below up to `height`.
Image spread(const Image& image, int64_t top, int64_t height) {
  Image out{image.width, height, image.channels, {}};
  const Image upper = edge_row(image, false), lower = edge_row(image, true);
  for (int64_t y = 0; y < top; ++y) out.pixels.insert(out.pixels.end(), upper.pixels.begin(), upper.pixels.end());
  out.pixels.insert(out.pixels.end(), image.pixels.begin(), image.pixels.end());
  for (int64_t y = top + image.height; y < height; ++y)
    out.pixels.insert(out.pixels.end(), lower.pixels.begin(), lower.pixels.end());
  return out;
}
}  // namespace

std::vector<std::string> resize_mode_names() { return {kModeNames.begin(), kModeNames.end()}; }

std::string name_of(ResizeMode mode) { return kModeNames.at(static_cast<size_t>(mode)); }

ResizeMode parse_resize_mode(const std::string& name) {
  const auto it = std::find(kModeNames.begin(), kModeNames.end(), name);
  if (it != kModeNames.end()) return static_cast<ResizeMode>(it - kModeNames.begin());
  throw Error(ErrorKind::Usage, "resize mode", "'" + name + "' is none of stretch, crop, fill",
              did_you_mean(name, resize_mode_names()));
}

Image fit(const Image& image, int64_t width, int64_t height, ResizeMode mode) {
  check_pixels(image);
  if (image.width == width && image.height == height) return image;
  if (mode == ResizeMode::Stretch) return resize(image, width, height, Resampling::Lanczos);
  // If the picture is wider than the target, its height decides the scale for cropping, its width that for filling.
  const bool wider = width * image.height <= image.width * height, by_height = wider == (mode == ResizeMode::Crop);
  const int64_t w = by_height ? image.width * height / image.height : width;
  const int64_t h = by_height ? height : image.height * width / image.width;
  TENON_CHECK(Usage, std::max(w, h) <= kMaxImageSide, "picture")
      << "is " << image.width << "x" << image.height << ", too elongated to cover " << width << "x" << height
      << ": scaled, it would be " << w << "x" << h << ", and sides are at most " << kMaxImageSide;
  const Image scaled = resize(image, std::max<int64_t>(w, 1), std::max<int64_t>(h, 1), Resampling::Lanczos);
  const int64_t left = width / 2 - scaled.width / 2, top = height / 2 - scaled.height / 2;
  if (mode == ResizeMode::Crop) return crop(scaled, -left, -top, width, height);
  return scaled.width == width ? spread(scaled, top, height) : transposed(spread(transposed(scaled), left, width));
}

}  // namespace tenon
