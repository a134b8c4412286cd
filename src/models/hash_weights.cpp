#include "tenon/models/hash_weights.h"

#include "tenon/core/error.h"

namespace tenon {
namespace {

// FNV-1a, which unlike std::hash is the same everywhere.
uint64_t hash_name(std::string_view name, uint64_t seed) {
  uint64_t h = 0xcbf29ce484222325ull ^ (seed * 0x9e3779b97f4a7c15ull);
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h;
}

// splitmix64 of a counter, as a number in [-1, 1) on a grid of 2^-23.
float signed_uniform(uint64_t counter) {
  uint64_t x = counter * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(x >> 32)) >> 8) * 0x1p-23f;
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
  const auto value = [&](int64_t i) {
    return law.centre + law.spread * signed_uniform(base + static_cast<uint64_t>(i));
  };
  switch (dtype) {
    case DType::F32:
      for (int64_t i = begin; i < end; ++i) static_cast<float*>(out)[i - begin] = value(i);
      return;
    case DType::BF16:
      for (int64_t i = begin; i < end; ++i) static_cast<uint16_t*>(out)[i - begin] = bf16_bits(value(i));
      return;
    default:
      for (int64_t i = begin; i < end; ++i) store_element(dtype, out, i - begin, static_cast<double>(value(i)));
  }
}

}  // namespace tenon
