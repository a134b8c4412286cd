// Blocks of i8: contents of Q8_0 files round-trip unchanged, other numbers are rounded to nearest, odd ones are
// reported.
#include "tenon/core/i8_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "tenon/core/dtype.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;

TEST(I8Blocks, OfQ80AreTheFilesOwn) {
  std::mt19937 random(7);
  for (int block = 0; block < 20000; ++block) {
    // Every scale in f16, including the smallest.
    const auto bits = static_cast<uint16_t>(1 + random() % 0x7bff);
    std::array<int8_t, kI8Block> stored{}, found{};
    for (int8_t& q : stored) q = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
    stored[random() % stored.size()] = random() % 2 ? 127 : -127;
    std::array<float, kI8Block> x{};
    for (size_t i = 0; i < x.size(); ++i) x[i] = f16_value(bits) * static_cast<float>(stored[i]);
    const float scale = round_i8_block(x.data(), kI8Block, BlockScale::F16, found.data());
    ASSERT_EQ(f16_bits(scale), bits);
    ASSERT_EQ(found, stored) << "scale " << scale;
  }
}

TEST(I8Blocks, TakeTheNearest) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  for (const float size : {1e-4f, 1.0f, 1e4f})
    for (const BlockScale kind : {BlockScale::F16, BlockScale::F32}) {
      std::array<float, kI8Block> x{};
      std::array<int8_t, kI8Block> q{};
      for (float& v : x) v = size * normal(random);
      const float scale = round_i8_block(x.data(), kI8Block, kind, q.data());
      if (kind == BlockScale::F16) {
        EXPECT_EQ(f16_value(f16_bits(scale)), scale);
      }
      for (size_t i = 0; i < x.size(); ++i)  // the largest may be 127.06 steps away
        EXPECT_LE(std::abs(x[i] - scale * q[i]), 0.501f * scale + 0x1p-25f * 127) << size;
    }
  const std::array<float, 5> ties{127, 0.5f, 1.5f, -2.5f, -127};
  std::array<int8_t, 5> q{};
  EXPECT_EQ(round_i8_block(ties.data(), 5, BlockScale::F32, q.data()), 1);
  EXPECT_THAT(q, ElementsAre(127, 0, 2, -2, -127));
}

TEST(I8Blocks, OddNumbers) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::array<int8_t, 2> q{1, 1};
  const auto scale = [&](float x, BlockScale kind) {
    const std::array<float, 2> block{x, x / 2};
    return round_i8_block(block.data(), 2, kind, q.data());
  };
  for (const BlockScale kind : {BlockScale::F16, BlockScale::F32}) {
    for (const float nothing : {0.0f, -0.0f, 1e-38f}) {
      EXPECT_EQ(scale(nothing, kind), 0);
      EXPECT_THAT(q, ElementsAre(0, 0));
    }
    EXPECT_TRUE(std::isnan(scale(std::nanf(""), kind)));
    EXPECT_EQ(scale(-kInfinity, kind), kInfinity);
  }
  EXPECT_EQ(scale(9e6f, BlockScale::F16), kInfinity);
  EXPECT_NEAR(scale(9e6f, BlockScale::F32), 9e6f / 127, 1);
  const std::vector<double> rows{127, 0, 0, 0, 0, -254};
  EXPECT_EQ(i8_rows(rows.data(), 2, 3, BlockScale::F16), rows);
}

}  // namespace
}  // namespace tenon
