// Weights that need no file: computed from a tensor's name and an element's index, identical on every machine and in
// any order of evaluation.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "tenon/core/dtype.h"
#include "tenon/core/shape.h"

namespace tenon {

/// A hash of (k, i) mapped to [-0.5, 0.5): u(1, 0..3) = 0.15846673, 0.49619982, -0.20931299, 0.45122116.
inline double hash_uniform(uint32_t k, uint32_t i) {
  uint32_t x = k * 2654435761u + i * 1103515245u + 12345u;
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  x ^= x >> 16;
  return static_cast<double>(x) / 4294967296.0 - 0.5;
}

/// True for the scale of a norm, whose values are near 1: the name contains "norm" and ends in "weight".
inline bool is_norm_scale(std::string_view name) {
  return name.find("norm") != std::string_view::npos && name.ends_with("weight");
}

/// Element i of the tensor `name`, which is the rank-th (from 0) of its component in bytewise order of names. The
/// golden tests use these weights.
inline double hash_weight(std::string_view name, uint32_t rank, uint32_t i) {
  const double x = hash_uniform(rank + 1, i);
  return is_norm_scale(name) ? 1 + 0.4 * x : 0.3 * x;
}

/// Writes elements begin..end of the random tensor `name` of `shape` to out[0..] as `dtype` (f32, bf16 or f16).
/// Matrices and filters are uniform with variance 1/fan_in, which keeps activations at one scale through a network;
/// norm scales are near 1, biases near 0. The range may be split anyhow, so threads can share a tensor.
void random_weight(std::string_view name, const Shape& shape, DType dtype, int64_t begin, int64_t end, void* out,
                   uint64_t seed = 0);

}  // namespace tenon
