// The schedule of products: every row in exactly one band, even shares for any number of threads, bands that fit the
// cache.
#include "tenon/backend/cpu/tile/gemm_schedule.h"

#include <algorithm>

#include "tests/tile/support.h"

namespace tenon::cpu::test {
namespace {

void check(int64_t m, int64_t k, int threads) {
  SCOPED_TRACE(testing::Message() << m << " rows of " << k << ", " << threads << " threads");
  const PackedShape b = linear_shape(DType::BF16, 64, k);
  const GemmSchedule s(b, m, 1, threads, false);
  std::vector<int64_t> shares(static_cast<size_t>(threads));
  ASSERT_EQ(s.first_row(0), 0);
  ASSERT_EQ(s.first_row(s.bands), m);
  if (s.together) {
    EXPECT_EQ(s.bands, 1);
    return;
  }
  for (int64_t band = 0; band < s.bands; ++band) {
    const int64_t first = s.first_row(band), rows = s.first_row(band + 1) - first;
    EXPECT_EQ(first % kRowBlock, 0) << "band " << band;
    EXPECT_GE(rows, kRowBlock) << "band " << band;
    EXPECT_LE(rows, s.plane) << "band " << band;
    // Packed rows fit the L2 cache; rows that do not fill a block may exceed it.
    if (rows >= 3 * kRowBlock) {
      EXPECT_LE((rows - kRowBlock + 1) * b.terms() * kLine, l2_bytes() * 9 / 16);
    }
    shares[static_cast<size_t>(band % threads)] += rows;
  }
  const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
  EXPECT_LE(*most - *least, kRowBlock);
}

TEST(GemmSchedule, SharesDifferByAtMostABlock) {
  for (int threads : {1, 2, 3, 5, 8, 16})
    for (int64_t k : {64, 1536, 4096, 20000})
      for (int64_t m = 1; m < 12000; m += m < 700 ? 13 : 251) check(m, k, threads);
}

// Enough entries for every thread: each is one band, unless it does not fit the cache.
TEST(GemmSchedule, ManyEntries) {
  const PackedShape b = linear_shape(DType::F32, 64, 48);
  for (const int64_t m : {1, 5, 144, 700}) {
    const GemmSchedule s(b, m, 128, 2, true);
    EXPECT_FALSE(s.together);
    EXPECT_EQ(s.bands, 1);
    EXPECT_EQ(s.first_row(1), m);
    EXPECT_GE(s.plane, m);
  }
  EXPECT_TRUE(GemmSchedule(b, 144, 2, 2, true).together);
  EXPECT_GT(GemmSchedule(linear_shape(DType::F32, 64, 20000), 1000, 128, 2, false).bands, 4);
}

// A long K and many columns: a part of K of a whole band fits the cache, and every thread gets as many tasks.
TEST(GemmSchedule, InParts) {
  if (l2_bytes() > 2 << 20) GTEST_SKIP() << "larger products would be needed";
  for (const int64_t m : {128, 384, 415, 512, 1152, 4230})
    for (const int64_t k : {4100, 10240, 60000})
      for (const int lanes : {1, 2})
        for (const int threads : {1, 2, 3, 16}) {
          SCOPED_TRACE(testing::Message() << m << " rows of " << k << ", " << threads << " threads");
          const PackedShape b = linear_shape(DType::BF16, 3840, k, lanes);
          const GemmSchedule s(b, m, 1, threads, true);
          ASSERT_TRUE(s.in_parts);
          ASSERT_FALSE(s.together);
          ASSERT_EQ(s.first_row(0), 0);
          ASSERT_EQ(s.first_row(s.bands), m);
          for (int64_t band = 0; band < s.bands; ++band) {
            EXPECT_EQ(s.first_row(band) % kRowBlock, 0);
            EXPECT_LE(s.first_row(band + 1) - s.first_row(band), s.longest_band());
          }
          EXPECT_LE(s.longest_band(), std::min<int64_t>(m, 384 + kRowBlock));
          EXPECT_GE(s.longest_band(), std::min<int64_t>(m, 192));
          EXPECT_LE(s.part_terms * s.longest_band() * kLine, l2_bytes() / 2);
          EXPECT_EQ(s.tasks % threads, 0);
        }
  const PackedShape b = linear_shape(DType::BF16, 3840, 10240);
  EXPECT_FALSE(GemmSchedule(b, 384, 1, 2, false).in_parts);
  EXPECT_FALSE(GemmSchedule(b, 127, 1, 2, true).in_parts);
  EXPECT_FALSE(GemmSchedule(linear_shape(DType::BF16, 16, 10240), 384, 1, 2, true).in_parts);
  EXPECT_FALSE(GemmSchedule(linear_shape(DType::BF16, 10240, 320), 384, 1, 2, true).in_parts);
}

// A vision transformer's tokens for eight pictures.
TEST(GemmSchedule, RowsThatFillNoBlock) {
  for (int64_t k : {1536, 4096}) check(2056, k, 2);
}

}  // namespace
}  // namespace tenon::cpu::test
