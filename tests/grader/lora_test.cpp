// What a LoRA teaches an embedded model: an unknown thing by an unknown word, also in colours that the LoRA was not
// trained on; and what the model still knows.
//
// TENON_TEST_LORA=run/pytorch_lora_weights.safetensors test_grader --gtest_filter='TrainedLora.*' measures a LoRA of
// `tenon train lora`, which takes minutes to train (for -m z-image-shapes: TENON_TEST_LORA_MODEL=z-image-shapes);
// without the variable only the models are tested, with a few prompts.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "tenon/train/ovals.h"
#include "tests/grader/drawing.h"

namespace tenon::grader {
namespace {

// Pairs of colours, in sentences other than those of the training pictures.
std::vector<Prompt> oval_prompts(size_t count) {
  std::set<std::string> known;
  for (const train::CaptionedPicture& p : train::ovals()) known.insert(p.caption);
  std::vector<Prompt> out;
  for (uint32_t i = 0; out.size() < count; ++i) {
    const auto color = Color(i * 7 % kColors), background = Color((i * 7 + 1 + i / kColors % (kColors - 1)) % kColors);
    const std::string thing = name_of(color) + " " + train::kOvalWord, on = name_of(background);
    const std::string all[] = {"a " + thing + " on a " + on + " background",
                               "a picture of a " + thing + " on a " + on + " background",
                               thing + ", " + on + " background", "a " + on + " background with a " + thing};
    if (std::ranges::any_of(all, [&](const std::string& text) { return known.contains(text); })) continue;
    out.push_back({static_cast<uint32_t>(5000 + out.size()),
                   i % 2 ? "an image of a " + thing + " on a " + on + " background" : all[0],
                   {{{Shape::Oval, color}}, background, Relation::None}});
  }
  return out;
}

std::unique_ptr<ImageGenerator> opened(const std::string& model) {
  PipelineOptions options;
  options.keep_networks = true;
  return open_as<ImageGenerator>(model, options);
}

// The grader confirms that the training pictures show what their captions say.
TEST(Lora, TheGraderKnowsAnOval) {
  for (const train::CaptionedPicture& p : train::ovals()) {
    bool found = false;
    for (int color = 0; color < kColors; ++color)
      for (int background = 0; background < kColors; ++background)
        found = found || (color != background &&
                          grade(p.image.pixels.data(), 128, 128,
                                {{{Shape::Oval, Color(color)}}, Color(background), Relation::None})
                              .pass &&
                          p.caption.find(name_of(Color(color))) != std::string::npos &&
                          p.caption.find(name_of(Color(background))) != std::string::npos);
    EXPECT_TRUE(found) << p.caption;
  }
}

// Prompts for grading are not among the training scenes.
TEST(Lora, KnownScenesAreNotGraded) {
  const std::vector<std::string> known = train::known_scenes();
  for (const Prompt& p : read_prompts(TENON_SOURCE_DIR "/tests/grader/prompts.txt"))
    EXPECT_EQ(std::ranges::count(known, p.text), 0) << p.text;
}

TEST(Lora, ModelsAloneDoNotKnowIt) {
  for (const char* model : {"default-model", "z-image-shapes"})
    EXPECT_EQ(draw(*opened(model), oval_prompts(5), 1).passed, 0) << model;
}

// The LoRA of TENON_TEST_LORA, on TENON_TEST_LORA_MODEL (default: default-model).
class TrainedLora : public testing::Test {
 protected:
  void SetUp() override {
    file_ = std::getenv("TENON_TEST_LORA");
    if (!file_) GTEST_SKIP() << "TENON_TEST_LORA names no file";
    const char* model = std::getenv("TENON_TEST_LORA_MODEL");
    pipeline_ = opened(model ? model : "default-model");
  }
  const char* file_ = nullptr;
  std::unique_ptr<ImageGenerator> pipeline_;
};

TEST_F(TrainedLora, TeachesAThing) {
  const Drawn with = draw(*pipeline_, oval_prompts(100), 1, file_), without = draw(*pipeline_, oval_prompts(100), 1);
  std::cout << with.passed << " of 100 ovals with the LoRA, " << without.passed << " without\n" << with.failures;
  EXPECT_GE(with.passed, 80);
  EXPECT_LE(without.passed, 5);
}

TEST_F(TrainedLora, LeavesTheRest) {
  const std::vector<Prompt> known = read_prompts(TENON_SOURCE_DIR "/tests/grader/prompts.txt");
  const Drawn with = draw(*pipeline_, known, 1, file_), without = draw(*pipeline_, known, 1);
  std::cout << "of 100 other prompts " << with.passed << " with the LoRA, " << without.passed << " without\n"
            << with.failures;
  EXPECT_GE(with.passed, without.passed - 3);
}

}  // namespace
}  // namespace tenon::grader
