#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tenon/backend/cpu/tile/winograd.h"
#include "tenon/core/error.h"

namespace tenon::cpu {
namespace {

constexpr float kA = 0.70710678f, kB = 1.41421356f;

int64_t block_bytes(DType type) { return type == DType::F16 ? kBlock / 2 : kBlock; }

// y = G x: the quadratic x at the six points, each value over its Lagrange denominator; 16 columns at a time.
void transform(const float* x, int64_t from, float* y, int64_t to) {
  for (int c = 0; c < kPanel; ++c) {
    const float x0 = x[c], x1 = x[from + c], x2 = x[2 * from + c];
    const float even_a = (x0 + 0.5f * x2) * (-2.0f / 3), odd_a = kA * (-2.0f / 3) * x1;
    const float even_b = (x0 + 2.0f * x2) * (1.0f / 6), odd_b = kB * (1.0f / 6) * x1;
    y[c] = x0;
    y[to + c] = even_a + odd_a;
    y[2 * to + c] = even_a - odd_a;
    y[3 * to + c] = even_b + odd_b;
    y[4 * to + c] = even_b - odd_b;
    y[5 * to + c] = x2;
  }
}

// The power of two that scales the largest transformed weight below 2^15; |G x| <= 1.48 max |x| per direction.
float f16_scale(ThreadPool& pool, const TileOps& ops, const char* src, DType type, int64_t rows, int64_t row) {
  std::vector<float> largest(static_cast<size_t>(rows));
  pool.parallel_for(rows, [&](int64_t r, int) {
    std::vector<float> values(static_cast<size_t>(row));
    ops.widen(src + r * row * size_of(type), type, values.data(), row);
    for (float v : values) largest[static_cast<size_t>(r)] = std::max(largest[static_cast<size_t>(r)], std::abs(v));
  });
  const float most = *std::max_element(largest.begin(), largest.end());
  if (!(most > 0) || std::isinf(most)) return 1.0f;
  return std::ldexp(1.0f, std::clamp(13 - std::ilogb(most), -120, 120));
}

class Packer {
 public:
  Packer(const TileOps& ops, const void* src, DType src_type, const FilterShape& filters, DType type, float scale,
         char* dst)
      : ops_(ops),
        src_(static_cast<const char*>(src)),
        src_type_(src_type),
        o_(filters.o),
        c_(filters.i),
        type_(type),
        scale_(scale),
        dst_(dst) {}

  void panel(int64_t index) const {
    const int64_t row = c_ * 9, terms = div_up(c_, 16);
    const int cols = static_cast<int>(std::min<int64_t>(kPanel, o_ - index * kPanel));
    std::vector<float> lines(9 * 16 * kPanel), points(kWinogradPoints * 16 * kPanel);
    for (int64_t term = 0; term < terms; ++term) {
      const int64_t channels = std::min<int64_t>(16, c_ - term * 16);
      const char* from = src_ + (index * kPanel * row + term * 16 * 9) * size_of(src_type_);
      ops_.pack_panel({from, src_type_, row, channels * 9, cols, lines.data(), DType::F32});
      for (int64_t i = 0; i < 16; ++i)
        channel(i < channels ? lines.data() + i * 9 * kPanel : nullptr, points.data() + i * kPanel);
      store(index, term, points.data());
    }
  }

 private:
  // The 36 points of one channel (null: zeros), 16 * 16 elements apart.
  void channel(const float* taps, float* points) const {
    constexpr int64_t kApart = 16 * kPanel;
    float half[6 * 3 * kPanel];
    for (int x = 0; taps && x < 3; ++x) transform(taps + x * kPanel, 3 * kPanel, half + x * kPanel, 3 * kPanel);
    for (int y = 0; y < 6; ++y) {
      float* to = points + y * 6 * kApart;
      if (taps) {
        transform(half + y * 3 * kPanel, kPanel, to, kApart);
      } else {
        for (int x = 0; x < 6; ++x) std::memset(to + x * kApart, 0, kLine);
      }
    }
  }
  void store(int64_t index, int64_t term, float* points) const {
    const int64_t block = block_bytes(type_), terms = div_up(c_, 16);
    for (int64_t i = 0; i < kWinogradPoints * 16 * kPanel; ++i) points[i] *= scale_;
    for (int64_t xi = 0; xi < kWinogradPoints; ++xi)
      ops_.narrow(points + xi * 16 * kPanel,
                  dst_ + kWinogradHeader + ((index * kWinogradPoints + xi) * terms + term) * block, type_, 16 * kPanel);
  }

  const TileOps& ops_;
  const char* src_;
  DType src_type_;
  int64_t o_, c_;
  DType type_;
  float scale_;
  char* dst_;
};

}  // namespace

int64_t winograd_weight_bytes(DType type, int64_t o, int64_t c) {
  return kWinogradHeader + div_up(o, kPanel) * kWinogradPoints * div_up(c, 16) * block_bytes(type);
}

void pack_winograd(ThreadPool& pool, const TileOps& ops, const void* src, DType src_type, const FilterShape& filters,
                   DType type, void* dst) {
  TENON_CHECK(Internal, type == DType::F32 || type == DType::F16, "winograd") << "cannot pack to " << name_of(type);
  const float scale = type == DType::F16
                          ? f16_scale(pool, ops, static_cast<const char*>(src), src_type, filters.o, filters.row())
                          : 1.0f;
  const float undo = 1.0f / scale;
  std::memset(dst, 0, kWinogradHeader);
  std::memcpy(dst, &undo, sizeof(undo));
  const Packer packer(ops, src, src_type, filters, type, scale, static_cast<char*>(dst));
  pool.parallel_for(div_up(filters.o, kPanel), [&](int64_t index, int) { packer.panel(index); });
}

}  // namespace tenon::cpu
