#include "tenon/io/random.h"

#include <bit>
#include <cmath>
#include <numbers>
#include <random>

// Every fused multiply-add below is explicit. The compiler must not create more by contracting a product and a sum.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#else
#pragma STDC FP_CONTRACT OFF
#endif

namespace tenon {
namespace {

// ln x for normal x > 0: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), then the Cephes logf polynomial in m - 1.
float cephes_log(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  float e = static_cast<float>(static_cast<int32_t>(bits >> 23) - 126);
  const float m = std::bit_cast<float>((bits & 0x007fffffu) | 0x3f000000u);  // in [0.5, 1)
  float f = m - 1.0f;
  if (m < 0.707106781186547524f) {
    e -= 1.0f;
    f += m;
  }
  constexpr float kPoly[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                             -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                             2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
  float p = kPoly[0];
  for (int i = 1; i < 9; ++i) p = std::fma(p, f, kPoly[i]);
  const float square = f * f;
  const float tail = std::fma(p * f, square, e * -2.12194440e-4f);
  const float sum = f + std::fma(square, -0.5f, tail);
  return std::fma(e, 0.693359375f, sum);  // ln 2 = 0.693359375 - 2.12194440e-4
}

struct SinCos {
  float sin, cos;
};

// Sine and cosine for 0 <= x < 8192: Cephes sinf and cosf, reduced by an even number of quarter turns of pi/4.
SinCos cephes_sincos(float x) {
  const int32_t octant = (static_cast<int32_t>(x * 1.27323954473516f) + 1) & ~1;
  const float n = static_cast<float>(octant);
  float r = std::fma(n, -0.78515625f, x);
  r = std::fma(n, -2.4187564849853515625e-4f, r);
  r = std::fma(n, -3.77489497744594108e-8f, r);
  const float z = r * r;

  float c = std::fma(2.443315711809948e-5f, z, -1.388731625493765e-3f);
  c = std::fma(c, z, 4.166664568298827e-2f);
  c = std::fma(c * z, z, -(z * 0.5f)) + 1.0f;

  float s = std::fma(-1.9515295891e-4f, z, 8.3321608736e-3f);
  s = std::fma(s, z, -1.6666654611e-1f);
  s = std::fma(s * z, r, r);

  const bool swapped = (octant & 2) != 0;
  const float sine = swapped ? c : s, cosine = swapped ? s : c;
  return {(octant & 4) ? -sine : sine, ((octant + 2) & 4) ? -cosine : cosine};
}

// Converts sixteen uniforms to sixteen normals in place: pairs (i, i + 8).
void box_muller_16(float* v) {
  constexpr float kTwoPi = static_cast<float>(2.0 * std::numbers::pi);
  for (int i = 0; i < 8; ++i) {
    const float radius = std::sqrt(-2.0f * cephes_log(1.0f - v[i]));
    const SinCos angle = cephes_sincos(kTwoPi * v[i + 8]);
    // Adding the mean, 0, turns -0 (from a radius of 0) into +0.
    v[i] = radius * angle.cos + 0.0f;
    v[i + 8] = radius * angle.sin + 0.0f;
  }
}

}  // namespace

TorchGenerator::TorchGenerator(uint64_t seed) {
  state_[0] = static_cast<uint32_t>(seed);
  for (uint32_t i = 1; i < state_.size(); ++i) state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
}

// Matsumoto and Nishimura, "Mersenne Twister", 1998: MT19937.
void TorchGenerator::twist() {
  constexpr size_t kLag = 397;
  const size_t n = state_.size();
  for (size_t i = 0; i < n; ++i) {
    const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % n] & 0x7fffffffu);
    state_[i] = state_[(i + kLag) % n] ^ (y >> 1) ^ ((y & 1u) ? 0x9908b0dfu : 0u);
  }
  used_ = 0;
}

uint32_t TorchGenerator::next() {
  if (used_ == state_.size()) twist();
  uint32_t y = state_[used_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

float TorchGenerator::uniform() { return static_cast<float>(next() & 0xffffffu) * 0x1p-24f; }

double TorchGenerator::uniform_double() {
  const uint64_t high = next();
  const uint64_t bits = (high << 32) | next();
  return static_cast<double>(bits & ((uint64_t{1} << 53) - 1)) * 0x1p-53;
}

double TorchGenerator::normal_double() {
  if (spare_) {
    const double value = *spare_;
    spare_.reset();
    return value;
  }
  const double turn = uniform_double();
  const double radius = std::sqrt(-2.0 * std::log1p(-uniform_double()));
  const double theta = 2.0 * std::numbers::pi * turn;
  spare_ = radius * std::sin(theta);
  return radius * std::cos(theta);
}

void TorchGenerator::rand(std::span<float> out) {
  for (float& v : out) v = uniform();
}

void TorchGenerator::randn(std::span<float> out) {
  if (out.size() < 16) {
    for (float& v : out) v = static_cast<float>(normal_double());
    return;
  }
  rand(out);
  const size_t whole = out.size() / 16 * 16;
  for (size_t i = 0; i < whole; i += 16) box_muller_16(out.data() + i);
  if (whole != out.size()) {
    const auto tail = out.last(16);
    rand(tail);
    box_muller_16(tail.data());
  }
}

uint64_t draw_seed() { return std::random_device{}(); }

}  // namespace tenon
