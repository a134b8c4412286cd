// Pictures of several aspect ratios: training sizes, and which pictures a batch has.
#include "tenon/train/batch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tenon/train/picture_sizes.h"

namespace tenon::train {
namespace {

TEST(PictureSizes, HaveOneArea) {
  for (const int64_t side : {128, 512, 1024}) {
    const int64_t unit = side == 1024 ? 16 : 8, step = side / 16;
    const std::vector<PictureSize> all = aspect_buckets({side, side}, unit);
    EXPECT_EQ(std::ranges::count(all, PictureSize{side, side}), 1);
    for (const PictureSize s : all) {
      EXPECT_EQ(s.width % step, 0);
      EXPECT_EQ(s.height % step, 0);
      EXPECT_NEAR(static_cast<double>(s.width * s.height) / static_cast<double>(side * side), 1, 0.05);
    }
    EXPECT_LE(all.front().width * 17, all.front().height * 10);
    EXPECT_GE(all.back().width * 10, all.back().height * 17);
  }
  // Few multiples of the unit fit a side of less than nine of them.
  for (const int64_t unit : {8, 16})
    for (int64_t side = unit; side <= 2048; side += unit)
      for (const PictureSize s : aspect_buckets({side, side}, unit))
        EXPECT_NEAR(static_cast<double>(s.width * s.height) / static_cast<double>(side * side), 1,
                    side < 9 * unit ? 0.12 + 1e-9 : 0.05);
  for (const PictureSize s : aspect_buckets({72, 72}, 16)) EXPECT_TRUE(s.width == 72 || s.width % 16 == 0);
}

TEST(PictureSizes, NearestShape) {
  const std::vector<PictureSize> all = aspect_buckets({512, 512}, 8);
  const auto nearest = [&](int64_t width, int64_t height) { return nearest_shape(all, {width, height}); };
  EXPECT_EQ(nearest(77, 77), (PictureSize{512, 512}));
  EXPECT_EQ(nearest(3000, 2000), (PictureSize{640, 416}));
  EXPECT_EQ(nearest(2000, 3000), (PictureSize{416, 640}));
  EXPECT_EQ(nearest(10, 1000), all.front());
  EXPECT_EQ(nearest(1000, 10), all.back());
}

PictureSet set_of(const std::vector<PictureSize>& sizes) {
  PictureSet out;
  for (const PictureSize s : sizes) out.pictures.push_back({{}, 0, s});
  return out;
}

// Pictures of one size come in rounds, however they are divided into batches.
TEST(BatchOrder, OfOneSize) {
  const PictureSet set = set_of({5, {64, 64}});
  const auto drawn = [&](int64_t batch, int64_t batches, uint64_t seed) {
    const BatchOrder order(set, batch, seed);
    EXPECT_EQ(order.sizes().size(), 1U);
    std::vector<size_t> out;
    for (int64_t n = 0; n < batches; ++n)
      for (const size_t p : order.at(n).pictures) out.push_back(p);
    return out;
  };
  const std::vector<size_t> one = drawn(1, 24, 7);
  EXPECT_EQ(drawn(4, 6, 7), one);
  EXPECT_NE(drawn(1, 24, 8), one);
  for (auto round = one.begin(); one.end() - round >= 5; round += 5)
    EXPECT_THAT(std::vector<size_t>(round, round + 5), testing::UnorderedElementsAre(0, 1, 2, 3, 4));
}

// A batch has one size, and a cycle has every picture equally often.
TEST(BatchOrder, OfSeveralSizes) {
  const PictureSize wide{80, 48}, square{64, 64}, high{48, 80};
  const PictureSet set = set_of({wide, square, high, square, wide, square, square});
  const BatchOrder order(set, 3, 5), again(set, 3, 5);
  EXPECT_EQ(order.sizes(), (std::vector<PictureSize>{high, square, wide}));
  std::vector<std::vector<size_t>> cycles;
  for (int64_t cycle = 0; cycle < 4; ++cycle) {
    std::map<size_t, int> times;
    cycles.emplace_back();
    for (int64_t n = cycle * 7; n < cycle * 7 + 7; ++n) {
      const BatchOrder::Batch batch = order.at(n);
      EXPECT_EQ(batch.pictures, again.at(n).pictures);
      ASSERT_EQ(batch.pictures.size(), 3U);
      cycles.back().push_back(batch.size);
      for (const size_t p : batch.pictures) {
        EXPECT_EQ(set.pictures[p].size, order.sizes()[batch.size]);
        ++times[p];
      }
    }
    for (size_t p = 0; p < 7; ++p) EXPECT_EQ(times[p], 3) << p;
  }
  EXPECT_NE(cycles[0], cycles[1]);
}

}  // namespace
}  // namespace tenon::train
