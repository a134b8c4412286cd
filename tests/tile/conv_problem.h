// A convolution with random operands and its fp64 result.
#pragma once
#include <atomic>
#include <sstream>

#include "tenon/backend/cpu/tile/conv.h"
#include "tests/tile/support.h"

namespace tenon::cpu::test {

struct ConvProblem {
  ConvShape s;
  std::vector<float> x, w;              // NHWC, [o, c, kh, kw]
  std::vector<float> by_tap;            // [kh, kw, c, o]
  std::vector<double> expected, bound;  // [n, out_h, out_w, o]

  explicit ConvProblem(const ConvShape& shape) : s(shape) {
    x = random_bf16_values(s.n * s.h * s.w * s.c, 1);
    w = random_bf16_values(s.o * s.c * s.kh * s.kw, 2);
    by_tap.resize(w.size());
    const int64_t taps = int64_t{s.kh} * s.kw;
    for (int64_t o = 0; o < s.o; ++o)
      for (int64_t i = 0; i < s.c * taps; ++i)
        by_tap[static_cast<size_t>((i % taps * s.c + i / taps) * s.o + o)] = w[static_cast<size_t>(o * s.c * taps + i)];
    expected.assign(static_cast<size_t>(s.out_pixels() * s.o), 0);
    bound = expected;
    for (int64_t p = 0; p < s.out_pixels(); ++p) pixel(p);
  }

  // All output channels of pixel p in the innermost loop, over weights [ky, kx, c, o].
  void pixel(int64_t p) {
    const int64_t ox = p % s.out_w(), oy = p / s.out_w() % s.out_h(), n = p / s.out_w() / s.out_h();
    double* sum = expected.data() + p * s.o;
    double* size = bound.data() + p * s.o;
    for (int ky = 0; ky < s.kh; ++ky)
      for (int kx = 0; kx < s.kw; ++kx) {
        const int64_t y = oy * s.stride + ky - s.pad_t, xx = ox * s.stride + kx - s.pad_l;
        if (y < 0 || y >= s.h || xx < 0 || xx >= s.w) continue;
        const float* pixels = x.data() + ((n * s.h + y) * s.w + xx) * s.c;
        const float* taps = by_tap.data() + (ky * s.kw + kx) * s.c * s.o;
        for (int64_t c = 0; c < s.c; ++c)
          for (int64_t o = 0; o < s.o; ++o) {
            const double v = static_cast<double>(pixels[c]) * taps[c * s.o + o];
            sum[o] += v;
            size[o] += std::abs(v);
          }
      }
    for (int64_t o = 0; o < s.o; ++o) size[o] = sum_tolerance(s.c * s.kh * s.kw, size[o]);
  }
};

inline std::string describe(const ConvShape& s) {
  std::ostringstream text;
  text << "[" << s.n << "," << s.h << "," << s.w << "," << s.c << "] -> " << s.o << ", " << s.kh << "x" << s.kw << " / "
       << s.stride << " pads " << s.pad_t << s.pad_l << s.pad_b << s.pad_r;
  return text.str();
}

/// Shared by a driver's hooks: the prologue (checks its arguments) and the epilogue (checks that nothing is passed
/// twice).
struct ConvHooks {
  const ConvProblem& p;
  std::vector<float> out;
  std::atomic<bool> outside{false}, twice{false};

  explicit ConvHooks(const ConvProblem& problem)
      : p(problem), out(problem.expected.size(), std::numeric_limits<float>::quiet_NaN()) {}
  void pixels(int64_t n, int64_t y, int64_t x0, int64_t x1, float* dst, int64_t ld) {
    const ConvShape& s = p.s;
    if (n < 0 || n >= s.n || y < 0 || y >= s.h || x0 < 0 || x1 > s.w || x0 >= x1) outside = true;
    for (int64_t x = x0; x < x1; ++x)
      std::memcpy(dst + (x - x0) * ld, p.x.data() + ((n * s.h + y) * s.w + x) * s.c,
                  static_cast<size_t>(s.c) * sizeof(float));
  }
  void tile(const OutTile& t) {
    for (int r = 0; r < t.rows; ++r)
      for (int j = 0; j < t.cols; ++j) {
        float& to = out[static_cast<size_t>((t.row0 + r) * p.s.o + t.col0 + j)];
        if (!std::isnan(to)) twice = true;
        to = t.acc[0][r * t.ld + j];
      }
  }
  void expect_sane() const {
    EXPECT_FALSE(outside) << "the prologue was asked for a pixel outside the image";
    EXPECT_FALSE(twice) << "an element came twice";
  }
};

}  // namespace tenon::cpu::test
