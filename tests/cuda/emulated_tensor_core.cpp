#include "tests/cuda/emulated_tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tenon/core/dtype.h"

namespace tenon::cuda::test {

using device::host::Element;
using device::host::LdmatrixArguments;
using device::host::MmaArguments;
using device::host::WgmmaArguments;

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

// Also compiled for the wider vectors that processors may have. The bits are the same: products are exact, so it does
// not matter whether they are added in the same instruction.
#if defined(__x86_64__) && !defined(__clang__)
#define FOR_ALL_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_ALL_VECTORS
#endif

// A tensor core adds all 16 products to the sum at once: their order does not matter.
FOR_ALL_VECTORS void add_halves(const float* a, const float* b, int depth, int n, float* sums) {
  constexpr int kTogether = 8;  // every n is a multiple
  for (int first = 0; first < n; first += kTogether) {
    double all[kTogether];
    for (int i = 0; i < kTogether; ++i) all[i] = double{sums[first + i]};
    for (int k = 0; k < depth; ++k)
      for (int i = 0; i < kTogether; ++i) all[i] += double{a[k]} * double{b[k * n + first + i]};
    for (int i = 0; i < kTogether; ++i) sums[first + i] = static_cast<float>(all[i]);
  }
}

FOR_ALL_VECTORS void add_e4m3(const float* a, const float* b, int depth, int n, float* sums) {
  constexpr int kMost = 256;
  float largest[kMost], steps[kMost], total[kMost];
  for (int col = 0; col < n; ++col) largest[col] = std::max(std::abs(sums[col]), 0x1p-60f);
  for (int k = 0; k < depth; ++k)
    for (int col = 0; col < n; ++col) largest[col] = std::max(largest[col], std::abs(a[k] * b[k * n + col]));
  for (int col = 0; col < n; ++col) {
    steps[col] = std::bit_cast<float>((std::bit_cast<uint32_t>(largest[col]) & 0x7f800000u) - (13u << 23));
    total[col] = std::trunc(sums[col] / steps[col]);
  }
  for (int k = 0; k < depth; ++k)
    for (int col = 0; col < n; ++col) total[col] += std::trunc(a[k] * b[k * n + col] / steps[col]);
  for (int col = 0; col < n; ++col) sums[col] = total[col] * steps[col];
}

void add_products(Element type, const float* a, const float* b, int depth, int n, float* sums) {
  (type == Element::E4M3 ? add_e4m3 : add_halves)(a, b, depth, n, sums);
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
  const int per_word = type == Element::E4M3 ? 4 : 2;  // elements of 4 bytes
  const int depth = 8 * per_word;
  float a[16][32], b[32][8], d[16][8];
  for (int l = 0; l < lanes; ++l) {
    const int g = l / 4, t = l % 4;
    for (int i = 0; i < 4; ++i) widen(type, &lane(l)->a[i], per_word, &a[g + i % 2 * 8][(t + i / 2 * 4) * per_word]);
    for (int i = 0; i < 2; ++i) {
      float column[4];
      widen(type, &lane(l)->b[i], per_word, column);
      for (int e = 0; e < per_word; ++e) b[(t + i * 4) * per_word + e][g] = column[e];
    }
    for (int i = 0; i < 4; ++i) d[g + i / 2 * 8][2 * t + i % 2] = lane(l)->d[i];
  }
  for (int row = 0; row < 16; ++row) add_products(type, a[row], b[0], depth, 8, d[row]);
  for (int l = 0; l < lanes; ++l)
    for (int i = 0; i < 4; ++i) lane(l)->d[i] = d[l / 4 + i / 2 * 8][2 * (l % 4) + i % 2];
}

namespace {

// Register 4j + i of lane l is a product of this row and column.
int row_of(int lane, int i) { return lane / 32 * 16 + lane % 32 / 4 + i / 2 * 8; }
int column_of(int lane, int j, int i) { return 8 * j + lane % 4 * 2 + i % 2; }
size_t place_of(int lane, int r, int n) {
  const auto row = static_cast<size_t>(row_of(lane, r % 4)), columns = static_cast<size_t>(n);
  return row * columns + static_cast<size_t>(column_of(lane, r / 4, r % 4));
}

// A swizzle permutes 16-byte chunks of an address by its bits from 7 up.
uint32_t swizzled(uint32_t address, int bytes) {
  const uint32_t mask = bytes == 128 ? 7 : bytes == 64 ? 3 : bytes == 32 ? 1 : 0;
  return address ^ ((address >> 7 & mask) << 4);
}

}  // namespace

uint32_t wgmma_address(uint64_t operand) { return static_cast<uint32_t>(operand & 0x3fff) << 4; }
namespace {

const char* descriptor_fault(uint64_t operand) {
  if (operand >> 62 != 1) return "wgmma operand without the swizzle of 128 bytes";
  if ((operand >> 32 & 0x3fff) << 4 != 1024) return "wgmma operand whose groups of 8 rows are not 1024 bytes apart";
  return nullptr;
}

// From one block of 64 columns to the next.
uint32_t block_bytes(uint64_t operand) { return static_cast<uint32_t>(operand >> 16 & 0x3fff) << 4; }

}  // namespace

const char* wgmma_fault(const WgmmaArguments& product) {
  if ((product.columns || product.a_columns) && product.element == Element::E4M3)
    return "wgmma with columns of 8-bit elements";
  if (product.columns && wgmma_address(product.b) % 1024 != 0) return "wgmma columns that do not begin at row 0 of 8";
  if (product.columns && product.n > 64 && block_bytes(product.b) % 1024 != 0)
    return "wgmma blocks of columns that are not whole groups of 8 rows apart";
  if (product.a_columns && wgmma_address(product.a) % 1024 != 0) return "wgmma columns that do not begin at row 0 of 8";
  const char* a = product.held ? nullptr : descriptor_fault(product.a);
  return a ? a : descriptor_fault(product.b);
}

int wgmma_bytes_of_b(const WgmmaArguments& product) {
  if (!product.columns) return (product.n - 1) / 8 * 1024 + 32;
  return (product.n - 1) / 64 * static_cast<int>(block_bytes(product.b)) + 2048;
}

void WarpgroupProducts::start(const WgmmaArguments (&lanes)[128]) {
  const int n = lanes[0].n;
  std::shared_ptr<Sums> sums;
  for (const auto& one : in_flight_)
    if (one->registers[0] == lanes[0].d) sums = one;
  if (!sums) {
    sums = in_flight_.emplace_back(std::make_shared<Sums>());
    sums->n = n;
    sums->values.resize(size_t{64} * static_cast<size_t>(n));
    for (int l = 0; l < 128; ++l) {
      sums->registers[l] = lanes[l].d;
      for (int r = 0; r < n / 2; ++r) {
        sums->values[place_of(l, r, n)] = lanes[l].d[r];
        std::memset(&lanes[l].d[r], 0xff, sizeof(float));
      }
    }
  }
  ++sums->pending;
  Product& product = open_.emplace_back(Product{lanes[0], sums, {}, {}});
  if (lanes[0].held == nullptr) return;
  for (int l = 0; l < 128; ++l) {
    product.lanes_held[l] = lanes[l].held;
    std::copy_n(lanes[l].held, 4, product.held[l].begin());
  }
}

void WarpgroupProducts::commit() {
  groups_.push_back(std::move(open_));
  open_.clear();
}

// Row r of a, the words of which its lanes hold as for mma.
void WarpgroupProducts::held_row(const Product& product, int r, float* to) {
  for (int t = 0; t < 4; ++t) {
    const int l = r / 16 * 32 + r % 8 * 4 + t, i = r % 16 / 8;
    for (int half = 0; half < 2; ++half) {
      const uint32_t word = product.held[l][static_cast<size_t>(i + 2 * half)];
      if (product.lanes_held[l][i + 2 * half] != word) fault_ = "held words changed before their product's wait";
      widen(product.what.element, &word, 2, to + 2 * t + 8 * half);
    }
  }
}

void WarpgroupProducts::multiply(const Product& product, const unsigned char* shared) {
  const WgmmaArguments& w = product.what;
  const int depth = w.element == Element::E4M3 ? 32 : 16;
  auto row = [&](uint64_t operand, int r, float* to) {  // 32 bytes along the inner dimension
    const uint32_t from = wgmma_address(operand) + static_cast<uint32_t>(r / 8 * 1024 + r % 8 * 128);
    for (uint32_t half = 0; half < 2; ++half)
      widen(w.element, shared + swizzled(from + 16 * half, 128), depth / 2, to + static_cast<int>(half) * depth / 2);
  };
  auto column = [&](uint64_t operand, int r, float* to) {
    for (int k = 0; k < depth; ++k) {
      const uint32_t from = wgmma_address(operand) + static_cast<uint32_t>(k * 128 + r * 2);
      widen(w.element, shared + swizzled(from, 128), 1, to + k);
    }
  };
  std::vector<float> b(size_t{32} * static_cast<size_t>(w.n));  // [depth][n]
  float one[32];
  for (int col = 0; col < w.n && !w.columns; ++col) {
    row(w.b, col, one);
    for (int k = 0; k < depth; ++k) b.data()[k * w.n + col] = one[k];
  }
  for (int k = 0; k < depth && w.columns; ++k)
    for (int col = 0; col < w.n; col += 8) {
      const uint32_t from = wgmma_address(w.b) + static_cast<uint32_t>(col) / 64 * block_bytes(w.b) +
                            static_cast<uint32_t>(k * 128 + col % 64 * 2);
      widen(w.element, shared + swizzled(from, 128), 8, b.data() + k * w.n + col);
    }
  for (int r = 0; r < 64; ++r) {
    w.held ? held_row(product, r, one) : w.a_columns ? column(w.a, r, one) : row(w.a, r, one);
    float* sums = product.sums->values.data() + r * w.n;
    if (!w.adds) std::fill_n(sums, w.n, 0.0f);
    add_products(w.element, one, b.data(), depth, w.n, sums);
  }
}

void WarpgroupProducts::finish(int groups_left, const unsigned char* shared) {
  while (groups_.size() > static_cast<size_t>(groups_left)) {
    for (const Product& product : groups_.front()) {
      multiply(product, shared);
      --product.sums->pending;
    }
    groups_.pop_front();
  }
  std::erase_if(in_flight_, [](const std::shared_ptr<Sums>& sums) {
    if (sums->pending > 0) return false;
    for (int l = 0; l < 128; ++l)
      for (int r = 0; r < sums->n / 2; ++r) sums->registers[l][r] = sums->values[place_of(l, r, sums->n)];
    return true;
  });
}

int box_bytes(const TensorBox& box) {
  int bytes = box.element_bytes;
  for (int i = 0; i < box.rank; ++i) bytes *= box.box[i];
  return bytes;
}

namespace {
// Calls move(element, place, inside) for each element of the box: its address in the tensor, if it is inside, and its
// place in shared memory, from `place` on.
template <class Move>
void for_each_element(const TensorBox& box, const int (&at)[5], uint32_t place, Move move) {
  const int rows = box_bytes(box) / (box.box[0] * box.element_bytes);
  for (int row = 0; row < rows; ++row) {
    bool inside = true;
    auto* line = static_cast<unsigned char*>(box.address);
    for (int i = 1, rest = row; i < box.rank; rest /= box.box[i], ++i) {
      const int64_t coordinate = at[i] + rest % box.box[i];
      inside = inside && coordinate >= 0 && coordinate < box.extent[i];
      line += coordinate * box.stride_bytes[i];
    }
    for (int x = 0; x < box.box[0]; ++x, place += static_cast<uint32_t>(box.element_bytes)) {
      const int64_t coordinate = at[0] + x;
      move(line + coordinate * box.element_bytes, swizzled(place, box.swizzle_bytes),
           inside && coordinate >= 0 && coordinate < box.extent[0]);
    }
  }
}
}  // namespace

void copy_box(const TensorBox& box, const int (&at)[5], unsigned char* shared, uint32_t dst) {
  const auto bytes = static_cast<size_t>(box.element_bytes);
  for_each_element(box, at, dst, [&](const unsigned char* element, uint32_t place, bool inside) {
    if (inside)
      std::memcpy(shared + place, element, bytes);
    else
      std::memset(shared + place, 0, bytes);
  });
}

void store_box(const TensorBox& box, const int (&at)[5], const unsigned char* shared, uint32_t src, bool adds) {
  for_each_element(box, at, src, [&](unsigned char* element, uint32_t place, bool inside) {
    if (!inside) return;
    if (adds) {
      float sum, part;
      std::memcpy(&sum, element, sizeof(sum));
      std::memcpy(&part, shared + place, sizeof(part));
      sum += part;
      std::memcpy(element, &sum, sizeof(sum));
    } else {
      std::memcpy(element, shared + place, static_cast<size_t>(box.element_bytes));
    }
  });
}

}  // namespace tenon::cuda::test
