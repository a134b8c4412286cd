#include "tenon/core/i8_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tenon/core/dtype.h"

namespace tenon {
namespace {

constexpr float kLargest = 127, kLeast = 0x1p-100f;

// Compares bits, so that a NaN counts as largest.
float largest_of(const float* x, int64_t n) {
  uint32_t bits = 0;
  for (int64_t i = 0; i < n; ++i) bits = std::max(bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return std::bit_cast<float>(bits);
}

// Rounds to nearest even, in a form that compilers can vectorise; |x| < 2^22.
float nearest(float x) {
  constexpr float kWhole = 0x1.8p23f;
  return (x + kWhole) - kWhole;
}

}  // namespace

float round_i8_block(const float* x, int64_t n, BlockScale kind, int8_t* q) {
  const float largest = largest_of(x, n), exact = largest < kLeast ? 0.0f : largest / kLargest;
  const float scale = kind == BlockScale::F16 ? f16_value(f16_bits(exact)) : exact;
  // Zeros if nothing can be divided by the scale, which then shows what happened to the block.
  const float inverse = scale > 0 && std::isfinite(scale) ? 1.0f / scale : 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    const float y = nearest(std::clamp(x[i] * inverse, -kLargest, kLargest));
    q[i] = y == y ? static_cast<int8_t>(y) : int8_t{0};
  }
  return scale;
}

std::vector<double> i8_rows(const double* x, int64_t rows, int64_t k, BlockScale kind) {
  std::vector<double> out(static_cast<size_t>(rows * k));
  float block[kI8Block];
  int8_t q[kI8Block];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t at = r * k; at < (r + 1) * k; at += kI8Block) {
      const int64_t n = std::min(kI8Block, (r + 1) * k - at);
      for (int64_t i = 0; i < n; ++i) block[i] = static_cast<float>(x[at + i]);
      const double scale = round_i8_block(block, n, kind, q);
      for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(at + i)] = scale * q[i];
    }
  return out;
}

}  // namespace tenon
