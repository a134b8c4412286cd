#include "emulated_tensor_core.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tenon/core/dtype.h"

namespace tenon::cuda::test {

using device::host::Element;
using device::host::LdmatrixArguments;
using device::host::MmaArguments;

namespace {

// Every value of a 16-bit or 8-bit type.
const std::vector<float>& values(Element type) {
  static const std::vector<float> f16 = [] {
    std::vector<float> v(65536);
    for (size_t i = 0; i < v.size(); ++i) v[i] = f16_value(static_cast<uint16_t>(i));
    return v;
  }();
  static const std::vector<float> e4m3 = [] {
    std::vector<float> v(256);
    for (size_t i = 0; i < v.size(); ++i) v[i] = e4m3_value(static_cast<uint8_t>(i));
    return v;
  }();
  return type == Element::F16 ? f16 : e4m3;
}

}  // namespace

void widen(Element type, const void* from, int n, float* to) {
  const auto* bytes = static_cast<const uint8_t*>(from);
  const auto* halves = static_cast<const uint16_t*>(from);
  if (type == Element::BF16) {
    for (int i = 0; i < n; ++i) to[i] = bf16_value(halves[i]);
  } else if (type == Element::F16) {
    const float* table = values(type).data();
    for (int i = 0; i < n; ++i) to[i] = table[halves[i]];
  } else {
    const float* table = values(type).data();
    for (int i = 0; i < n; ++i) to[i] = table[bytes[i]];
  }
}

void ldmatrix_together(void** arguments, int lanes) {
  auto lane = [&](int i) { return static_cast<LdmatrixArguments*>(arguments[i]); };
  int conflicts = 0;
  for (int m = 0; m < lane(0)->matrices; ++m) {
    uint16_t rows[8][8];
    int passes[8] = {};
    for (int r = 0; r < 8; ++r) {
      std::memcpy(rows[r], lane(8 * m + r)->row, 16);
      ++passes[reinterpret_cast<uintptr_t>(lane(8 * m + r)->row) / 16 % 8];
    }
    conflicts += *std::max_element(passes, passes + 8) - 1;
    for (int l = 0; l < lanes; ++l) {
      const int row = l / 4, col = l % 4 * 2;
      const uint32_t low = lane(l)->transpose ? rows[col][row] : rows[row][col];
      const uint32_t high = lane(l)->transpose ? rows[col + 1][row] : rows[row][col + 1];
      lane(l)->r[m] = low | high << 16;
    }
  }
  lane(0)->conflicts = conflicts;
}

void mma_together(void** arguments, int lanes) {
  auto lane = [&](int i) { return static_cast<const MmaArguments*>(arguments[i]); };
  const Element type = lane(0)->element;
  const int piece = type == Element::E4M3 ? 4 : 2;  // elements of 4 bytes
  const int depth = 8 * piece;
  float a[16][32], b[32][8], d[16][8];
  for (int l = 0; l < lanes; ++l) {
    const int g = l / 4, t = l % 4;
    for (int i = 0; i < 4; ++i) widen(type, &lane(l)->a[i], piece, &a[g + i % 2 * 8][(t + i / 2 * 4) * piece]);
    for (int i = 0; i < 2; ++i) {
      float column[4];
      widen(type, &lane(l)->b[i], piece, column);
      for (int e = 0; e < piece; ++e) b[(t + i * 4) * piece + e][g] = column[e];
    }
    for (int i = 0; i < 4; ++i) d[g + i / 2 * 8][2 * t + i % 2] = lane(l)->d[i];
  }
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < depth; ++k)
      for (int col = 0; col < 8; ++col) d[row][col] += a[row][k] * b[k][col];
  for (int l = 0; l < lanes; ++l)
    for (int i = 0; i < 4; ++i) lane(l)->d[i] = d[l / 4 + i / 2 * 8][2 * (l % 4) + i % 2];
}

}  // namespace tenon::cuda::test
