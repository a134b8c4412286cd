// What the tile kernels' tests share: poisoned buffers, random operands, and every table of kernels that can run here,
// the matrix-tile kernel through an emulation.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "tenon/backend/cpu/tile/tile_ops.h"

namespace tenon::cpu::test {

/// 64-byte aligned memory filled with NaN patterns.
class Poisoned {
 public:
  explicit Poisoned(int64_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(::operator new (static_cast<size_t>(bytes) + 64, std::align_val_t{64}))) {
    std::memset(data_.get(), 0xff, static_cast<size_t>(bytes) + 64);
  }
  void* get() const { return data_.get(); }
  float* floats() const { return reinterpret_cast<float*>(data_.get()); }
  /// True while the 64 bytes behind the buffer are as they were.
  bool intact() const {
    for (int64_t i = bytes_; i < bytes_ + 64; ++i)
      if (data_.get()[i] != std::byte{0xff}) return false;
    return true;
  }

 private:
  struct Delete {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  int64_t bytes_;
  std::unique_ptr<std::byte, Delete> data_;
};

/// Normal numbers that bf16 holds exactly, so that packing loses nothing.
inline std::vector<float> random_bf16_values(int64_t n, unsigned seed, float scale = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = bf16_value(bf16_bits(uniform(engine)));
  return x;
}

/// The values of `x` as an array of type `t`, as raw bytes.
inline std::vector<std::byte> stored_as(DType t, const std::vector<float>& x) {
  std::vector<std::byte> bytes(x.size() * static_cast<size_t>(size_of(t)));
  for (size_t i = 0; i < x.size(); ++i) store_element(t, bytes.data(), static_cast<int64_t>(i), x[i]);
  return bytes;
}

/// The AVX2 table with AMX's matrix kernel, its tiles emulated.
const TileOps& emulated_amx();

/// Every table that runs on this machine, and the emulated one.
inline std::vector<const TileOps*> all_ops() {
  std::vector<const TileOps*> list;
  for (int i = 0; i < kIsaCount; ++i)
    if (const TileOps* ops = tile_ops(static_cast<Isa>(i))) list.push_back(ops);
  list.push_back(&emulated_amx());
  return list;
}

/// Allowed difference of a sum of `k` products in f32 whose absolute values sum to `magnitude`.
inline double sum_tolerance(int64_t k, double magnitude) {
  return 6e-8 * (4 + 2 * std::sqrt(static_cast<double>(k))) * magnitude + 1e-30;
}

/// "bf16" / "f32" arithmetic of both packed types.
inline constexpr DType kPackedTypes[] = {DType::BF16, DType::F32};

}  // namespace tenon::cpu::test
