// Packed weights, element by element, from every storage type at every alignment; conversions; softmax blocks.
#include "tenon/backend/cpu/tile/pack.h"

#include "tests/tile/support.h"

namespace tenon::cpu::test {
namespace {

constexpr DType kSources[] = {DType::F32, DType::F16, DType::BF16, DType::E4M3};

// Element (column, k) of a packed operand.
float packed_at(const PackedShape& s, const void* data, int64_t lane, int64_t col, int64_t tap, int64_t k) {
  const int64_t step = term_elements(s.type);
  const auto* block = static_cast<const std::byte*>(data) + (lane * s.panels() + col / 16) * s.panel_bytes() +
                      (k / step * s.taps + tap) * kBlock;
  const int64_t in = k % step, c = col % 16;
  if (s.type == DType::F32) return static_cast<float>(load_element(DType::F32, block, in * 16 + c));
  return static_cast<float>(load_element(DType::BF16, block, (in / 2 * 16 + c) * 2 + in % 2));
}

// Values that every source type represents exactly.
std::vector<float> coarse_values(int64_t n) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7 % 31) - 15) / 4;
  return x;
}

// The stored values at an unaligned address.
std::vector<std::byte> misaligned(DType t, const std::vector<float>& x) {
  std::vector<std::byte> bytes = stored_as(t, x);
  bytes.insert(bytes.begin(), std::byte{0});
  return bytes;
}

void expect_padding_zero(const PackedShape& s, const void* data) {
  const int64_t step = term_elements(s.type), padded = round_up(s.k, step);
  for (int64_t lane = 0; lane < s.lanes; ++lane)
    for (int64_t col = 0; col < s.panels() * 16; ++col)
      for (int64_t tap = 0; tap < s.taps; ++tap)
        for (int64_t k = 0; k < padded; ++k)
          if (col >= s.cols || k >= s.k) {
            ASSERT_EQ(packed_at(s, data, lane, col, tap, k), 0.0f);
          }
}

TEST(Pack, Linear) {
  ThreadPool pool(2);
  for (const TileOps* ops : all_ops())
    for (DType type : kPackedTypes)
      for (DType source : kSources)
        for (auto [n, k, lanes] : {std::array<int64_t, 3>{1, 1, 1}, {17, 33, 1}, {20, 64, 2}, {33, 200, 1}}) {
          const auto x = coarse_values(lanes * n * (k + 3));
          const auto stored = misaligned(source, x);
          const PackedShape s = linear_shape(type, n, k, static_cast<int>(lanes));
          const Poisoned packed(s.bytes());
          pack_linear(pool, *ops, stored.data() + 1, source, k + 3, s, packed.get());
          for (int64_t lane = 0; lane < lanes; ++lane)
            for (int64_t i = 0; i < n; ++i)
              for (int64_t j = 0; j < k; ++j)
                ASSERT_EQ(packed_at(s, packed.get(), lane, i, 0, j),
                          x[static_cast<size_t>((lane * n + i) * (k + 3) + j)])
                    << ops->name << " " << name_of(source);
          expect_padding_zero(s, packed.get());
          EXPECT_TRUE(packed.intact());
        }
}

TEST(Pack, Transposed) {
  ThreadPool pool(2);
  for (const TileOps* ops : all_ops())
    for (DType type : kPackedTypes)
      for (DType source : kSources)
        for (auto [n, k] : {std::array<int64_t, 2>{1, 1}, {17, 33}, {40, 300}}) {
          const auto x = coarse_values(k * (n + 2));
          const auto stored = misaligned(source, x);
          const PackedShape s = linear_shape(type, n, k);
          const Poisoned packed(s.bytes());
          pack_transposed(pool, *ops, stored.data() + 1, source, n + 2, s, packed.get());
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < k; ++j)
              ASSERT_EQ(packed_at(s, packed.get(), 0, i, 0, j), x[static_cast<size_t>(j * (n + 2) + i)]) << ops->name;
          expect_padding_zero(s, packed.get());
          EXPECT_TRUE(packed.intact());
        }
}

TEST(Pack, Convolution) {
  ThreadPool pool(2);
  for (const TileOps* ops : all_ops())
    for (DType type : kPackedTypes)
      for (DType source : kSources)
        for (auto [o, i, kh, kw] :
             {std::array<int64_t, 4>{3, 4, 3, 3}, {17, 40, 3, 3}, {16, 33, 1, 1}, {5, 20, 2, 3}, {20, 16, 5, 5}})
          for (bool callback : {false, true}) {
            const int64_t taps = kh * kw, row = i * taps;
            const auto x = coarse_values(o * i * taps);
            const auto stored = misaligned(source, x);
            const FilterShape filters{o, i, static_cast<int>(kh), static_cast<int>(kw)};
            const PackedShape s = conv_shape(type, filters);
            const Poisoned packed(s.bytes()), scratch(pack_scratch_bytes(i * taps, 2));
            const auto fill = [&](int64_t row0, int64_t rows, float* dst, int64_t ld, int) {
              for (int64_t r = 0; r < rows; ++r)
                for (int64_t j = 0; j < row; ++j) dst[r * ld + j] = x[static_cast<size_t>((row0 + r) * row + j)];
            };
            if (callback)
              pack_conv(pool, *ops, fill, filters, type, packed.get(), scratch.get());
            else
              pack_conv(pool, *ops, stored.data() + 1, source, filters, type, packed.get());
            for (int64_t a = 0; a < o; ++a)
              for (int64_t b = 0; b < i; ++b)
                for (int64_t t = 0; t < taps; ++t) {
                  const float got = s.taps == taps ? packed_at(s, packed.get(), 0, a, t, b)
                                                   : packed_at(s, packed.get(), 0, a, 0, t * i + b);
                  ASSERT_EQ(got, x[static_cast<size_t>((a * i + b) * taps + t)]) << ops->name << " " << name_of(source);
                }
            expect_padding_zero(s, packed.get());
            EXPECT_TRUE(packed.intact());
          }
}

TEST(Convert, WidenKnowsEveryPattern) {
  for (const TileOps* ops : all_ops())
    for (DType t : {DType::F16, DType::BF16, DType::E4M3}) {
      const int64_t count = t == DType::E4M3 ? 256 : 65536;
      std::vector<std::byte> all(static_cast<size_t>(count * size_of(t)));
      for (int64_t i = 0; i < count; ++i) std::memcpy(all.data() + i * size_of(t), &i, static_cast<size_t>(size_of(t)));
      std::vector<float> out(static_cast<size_t>(count));
      ops->widen(all.data(), t, out.data(), count);
      for (int64_t i = 0; i < count; ++i) {
        const double expected = load_element(t, all.data(), i);
        const double got = out[static_cast<size_t>(i)];
        ASSERT_TRUE(std::isnan(expected) ? std::isnan(got) : got == expected)
            << ops->name << " " << name_of(t) << " " << i;
      }
    }
}

TEST(Convert, BytesOfE4m3AsBf16) {
  std::array<uint8_t, 256> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i);
  for (const TileOps* ops : all_ops()) {
    std::array<uint16_t, 256> out{};
    widen_bytes(*ops, DType::E4M3, all.data(), out.data(), 256);
    for (size_t i = 0; i < all.size(); ++i) {
      const float expected = e4m3_value(all[i]), got = bf16_value(out[i]);
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(got)
                                       : std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(expected))
          << ops->name << " " << i;
    }
  }
}

TEST(Convert, NarrowRoundsToNearestEven) {
  std::mt19937 engine(3);
  std::vector<float> x;
  for (int i = 0; i < 20000; ++i) {
    const float v = std::bit_cast<float>(static_cast<uint32_t>(engine()));
    if (std::isnan(v) || std::abs(v) >= 1e-37f) x.push_back(v);  // bf16 instructions flush denormals
  }
  x.insert(x.end(), {0.0f, -0.0f, INFINITY, -INFINITY, 65504.0f, 65520.0f, 1.00390625f, 1.01171875f, 3.4e38f});
  for (const TileOps* ops : all_ops())
    for (DType t : {DType::F16, DType::BF16, DType::F32})
      for (size_t n : {size_t{1}, size_t{5}, size_t{16}, size_t{31}, x.size()}) {
        std::vector<std::byte> out((n + 1) * static_cast<size_t>(size_of(t)), std::byte{0x55});
        ops->narrow(x.data(), out.data(), t, static_cast<int64_t>(n));
        for (size_t i = 0; i < n; ++i) {
          const double got = load_element(t, out.data(), static_cast<int64_t>(i)), expected = round_to(t, x[i]);
          ASSERT_TRUE(std::isnan(expected) ? std::isnan(got) : got == expected)
              << ops->name << " " << name_of(t) << " of " << x[i];
        }
        EXPECT_EQ(out.back(), std::byte{0x55});
      }
}

TEST(Convert, PackRowsFillsLines) {
  for (const TileOps* ops : all_ops())
    for (DType type : kPackedTypes)
      for (DType source : {DType::F32, DType::BF16, DType::F16})
        for (int64_t k : {1, 16, 31, 40, 64, 100}) {
          const auto x = coarse_values(5 * (k + 1));
          const auto stored = misaligned(source, x);
          const int64_t step = term_elements(type), terms = div_up(k, step), row = 128, term = 5 * row;
          const Poisoned lines(terms * term);
          ops->pack_rows({stored.data() + 1, source, k + 1, 5, k, lines.get(), type, row, term});
          for (int64_t r = 0; r < 5; ++r)
            for (int64_t j = 0; j < terms * step; ++j) {
              const auto* line = static_cast<std::byte*>(lines.get()) + r * row + j / step * term;
              const double expected = j < k ? x[static_cast<size_t>(r * (k + 1) + j)] : 0;
              ASSERT_EQ(load_element(type, line, j % step), expected) << ops->name << " k " << k;
            }
        }
}

}  // namespace
}  // namespace tenon::cpu::test
