// The embedded default model through the whole engine: prompts it was never trained on, graded.
#include <gtest/gtest.h>

#include "tenon/pipelines/families/stable_diffusion/text_to_image.h"
#include "tests/grader/grader.h"

namespace tenon::grader {
namespace {

constexpr int kMinPassing = 90;

TEST(DefaultModel, DrawsWhatPromptsAskFor) {
  const std::vector<Prompt> prompts = read_prompts(TENON_SOURCE_DIR "/tests/grader/prompts.txt");
  ASSERT_EQ(prompts.size(), 100u);
  PipelineOptions options;
  options.keep_networks = true;
  TextToImage pipeline(StableDiffusionModel::open(""), options);
  int passed = 0;
  std::string failures;
  for (const Prompt& p : prompts) {
    ImageRequest r;
    r.prompt = p.text;
    r.seed = p.seed;
    const Image image = pipeline.generate(r).images.at(0);
    const GradeResult g =
        grade(image.pixels.data(), static_cast<int>(image.width), static_cast<int>(image.height), p.expected);
    passed += g.pass ? 1 : 0;
    if (!g.pass) failures += p.text + ": " + g.reason + "\n";
  }
  RecordProperty("passed", passed);
  std::cout << passed << " of " << prompts.size() << " pictures show what was asked\n" << failures;
  EXPECT_GE(passed, kMinPassing) << failures;
}

TEST(DefaultModel, IsSmall) {
  const auto model = StableDiffusionModel::open("");
  int64_t bytes = 0;
  for (const auto& [name, component] : model->checkpoint()->components()) bytes += component.bytes();
  EXPECT_LE(bytes, 12 << 20);
  EXPECT_GE(model->defaults().width, 128);
}

}  // namespace
}  // namespace tenon::grader
