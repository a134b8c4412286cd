// The embedded model in Z-Image's layout through the whole engine, in bf16 and in e4m3 rows: prompts it was never
// trained on, graded, and a comparison of both types' pictures.
#include <gtest/gtest.h>

#include <cmath>

#include "tenon/pipelines/families/z_image/generator.h"
#include "tests/grader/drawing.h"

namespace tenon::grader {
namespace {

constexpr int kMinOfBf16 = 90, kMaxFewerInE4m3 = 2;
constexpr double kMaxDifference = 3.0;  // of 255, on average

Drawn drawn(const std::vector<Prompt>& prompts, DType type) {
  PipelineOptions options;
  options.keep_networks = true;
  options.type = type;
  ZImageGenerator pipeline(ZImageModel::open("z-image-shapes"), options);
  return draw(pipeline, prompts, 20);
}

double mean_difference(const Image& a, const Image& b) {
  if (a.pixels.empty() || a.pixels.size() != b.pixels.size()) return INFINITY;
  double sum = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(int{a.pixels[i]} - int{b.pixels[i]});
  return sum / static_cast<double>(a.pixels.size());
}

TEST(ZImageShapes, DrawsWhatPromptsAskForInBothTypes) {
  const std::vector<Prompt> prompts = read_prompts(TENON_SOURCE_DIR "/tests/grader/prompts.txt");
  ASSERT_EQ(prompts.size(), 100u);
  const Drawn bf16 = drawn(prompts, DType::BF16), e4m3 = drawn(prompts, DType::E4M3);
  double apart = 0;
  for (size_t i = 0; i < prompts.size(); ++i)
    apart += mean_difference(bf16.pictures[i], e4m3.pictures[i]) / static_cast<double>(prompts.size());
  std::cout << "bf16: " << bf16.passed << " of " << prompts.size() << "\n"
            << bf16.failures << "e4m3: " << e4m3.passed << "\n"
            << e4m3.failures << "pixels differ by " << apart << " of 255 on average\n";
  EXPECT_GE(bf16.passed, kMinOfBf16) << bf16.failures;
  EXPECT_GE(e4m3.passed, bf16.passed - kMaxFewerInE4m3) << e4m3.failures;
  EXPECT_GT(apart, 0) << "both types give the same bytes: e4m3 is not used";
  EXPECT_LE(apart, kMaxDifference);
}

TEST(ZImageShapes, IsSmall) {
  const auto model = ZImageModel::open("z-image-shapes");
  int64_t bytes = 0;
  for (const auto& [name, component] : model->components()) bytes += component.bytes();
  EXPECT_LE(bytes, 10'000'000);
  EXPECT_EQ(model->defaults().width, 128);
  EXPECT_FALSE(model->known_words().empty());
}

}  // namespace
}  // namespace tenon::grader
