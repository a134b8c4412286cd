// Shared by the tile kernels' tests: poisoned buffers, random operands, and every table of kernels that can run here,
// including the matrix-tile kernel by emulation.
#pragma once
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "tenon/backend/cpu/tile/tile_ops.h"
#include "tests/support/close.h"

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
  /// Whether the 64 bytes after the buffer are unchanged.
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

/// A copy of some bytes, followed by memory that must not be read.
class BeforeTheEnd {
 public:
  explicit BeforeTheEnd(const std::vector<std::byte>& bytes)
      : page_(sysconf(_SC_PAGESIZE)), size_((std::ssize(bytes) + page_ - 1) / page_ * page_) {
    void* mapped =
        mmap(nullptr, static_cast<size_t>(size_ + page_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(mapped);
    mprotect(base_ + size_, static_cast<size_t>(page_), PROT_NONE);
    data_ = base_ + size_ - std::ssize(bytes);
    std::copy(bytes.begin(), bytes.end(), data_);
  }
  ~BeforeTheEnd() { munmap(base_, static_cast<size_t>(size_ + page_)); }
  BeforeTheEnd(const BeforeTheEnd&) = delete;
  BeforeTheEnd& operator=(const BeforeTheEnd&) = delete;
  const std::byte* data() const { return data_; }

 private:
  int64_t page_, size_;
  std::byte *base_, *data_;
};

/// Normally distributed numbers that are exact in bf16, so that packing loses nothing.
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

/// The AVX2 table with AMX's matrix kernel on emulated tiles.
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

/// Compares `out` with fp64, each element within its own bound.
inline testing::AssertionResult within(const std::vector<float>& out, const std::vector<double>& expected,
                                       const std::vector<double>& bound) {
  return close(out, expected, [&](size_t i, double) { return bound[i]; });
}

/// EXPECTs `check` to fail for a result with a NaN, and for one with a block that was never written.
template <class Check>
void expect_faults_fail(const std::vector<float>& out, const Check& check) {
  std::vector<float> nan = out, dropped = out;
  nan[0] = std::numeric_limits<float>::quiet_NaN();
  for (size_t i = out.size() / 2; i < std::min(out.size(), out.size() / 2 + 64); ++i) dropped[i] = -777.0f;
  check(out);
  EXPECT_NONFATAL_FAILURE(check(nan), "the first at 0: nan");
  EXPECT_NONFATAL_FAILURE(check(dropped), ": -777, expected");
}

/// The arithmetic of both packed types, "bf16" and "f32".
inline constexpr DType kPackedTypes[] = {DType::BF16, DType::F32};

}  // namespace tenon::cpu::test
