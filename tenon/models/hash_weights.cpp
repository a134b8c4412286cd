#include "tenon/models/hash_weights.h"

#include <algorithm>

#include "tenon/core/error.h"

namespace tenon {
namespace {

// FNV-1a, which unlike std::hash is the same on every platform.
uint64_t hash_name(std::string_view name, uint64_t seed) {
  uint64_t h = 0xcbf29ce484222325ull ^ (seed * 0x9e3779b97f4a7c15ull);
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h;
}

// splitmix64: 64 well-mixed bits of a counter.
uint64_t mix(uint64_t counter) {
  uint64_t x = counter * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Four consecutive elements share the 64 bits of one counter, 16 each, as numbers in [-1, 1).
constexpr int64_t kGroup = 4;
float signed_uniform(uint64_t bits, int64_t place) {
  return static_cast<float>(static_cast<int16_t>(bits >> (16 * place))) * 0x1p-15f;
}

// Calls emit(i, number in [-1, 1)) for begin <= i < end; whole groups in a branch-free loop.
template <class Emit>
void each_uniform(uint64_t base, int64_t begin, int64_t end, const Emit& emit) {
  const auto part = [&](int64_t group, int64_t from, int64_t to) {
    const uint64_t bits = mix(base + static_cast<uint64_t>(group));
    for (int64_t k = from; k < to; ++k) emit(group * kGroup + k, signed_uniform(bits, k));
  };
  const int64_t first = (begin + kGroup - 1) / kGroup, last = end / kGroup;
  if (first > last) return part(last, begin % kGroup, end % kGroup);
  if (begin % kGroup) part(begin / kGroup, begin % kGroup, kGroup);
  for (int64_t group = first; group < last; ++group) part(group, 0, kGroup);
  if (end % kGroup) part(last, 0, end % kGroup);
}

struct Law {
  float centre, spread;
};
Law law_of(std::string_view name, const Shape& shape) {
  if (is_norm_scale(name)) return {1.0f, 0.2f};
  if (shape.rank() < 2) return {0.0f, 0.05f};
  const int64_t fan_in = std::max<int64_t>(1, shape[0] ? shape.numel() / shape[0] : 1);
  return {0.0f, std::sqrt(3.0f / static_cast<float>(fan_in))};  // a uniform number in [-a, a] has variance a^2 / 3
}

}  // namespace

void random_weight(std::string_view name, const Shape& shape, DType dtype, int64_t begin, int64_t end, void* out,
                   uint64_t seed) {
  TENON_CHECK(Usage, 0 <= begin && begin <= end && end <= shape.numel(), "random_weight")
      << "range " << begin << ".." << end << " is outside " << name << " " << shape.str();
  const uint64_t base = hash_name(name, seed);
  const Law law = law_of(name, shape);
  const auto fill = [&](auto* to, auto convert) {
    each_uniform(base, begin, end, [&](int64_t i, float u) { to[i - begin] = convert(law.centre + law.spread * u); });
  };
  if (dtype == DType::F32) return fill(static_cast<float*>(out), [](float v) { return v; });
  if (dtype == DType::BF16) return fill(static_cast<uint16_t*>(out), bf16_bits);
  TENON_CHECK(Usage, dtype == DType::F16, "random_weight") << "expected f32, bf16 or f16, got " << name_of(dtype);
  fill(static_cast<uint16_t*>(out), f16_bits);
}

}  // namespace tenon
