// Known words of the embedded model, and its warnings about prompts and sizes that it does not know.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tenon/core/error.h"
#include "tenon/pipelines/families/stable_diffusion/text_to_image.h"
#include "tenon/pipelines/families/z_image/generator.h"
#include "tenon/pipelines/known_words.h"

namespace tenon {
namespace {
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const KnownWords kFew{{"shapes", {"circle"}}, {"others", {"a", "red"}}};

std::vector<std::string> unknown_in(const KnownWords& known, std::string_view prompt) {
  return unknown_words(known, parse_prompt_weights(prompt));
}

TEST(KnownWords, WordsThatAreNotAmongThem) {
  EXPECT_THAT(unknown_in(kFew, "A red (circle:1.3), a Circle."), IsEmpty());
  EXPECT_THAT(unknown_in(kFew, "a castle and [a] red Dragon, castle"), ElementsAre("castle", "and", "dragon"));
  EXPECT_THAT(unknown_in(kFew, "3 circles, naïve 城"), ElementsAre("3", "circles", "naïve", "城"));
  EXPECT_THAT(unknown_in(kFew, "a dragon's circle"), ElementsAre("dragon")) << "its ending is no word";
  EXPECT_THAT(unknown_in({}, "a castle"), IsEmpty());
  EXPECT_THAT(unknown_in(kFew, ""), IsEmpty());
}

TEST(KnownWords, OfAnIndex) {
  EXPECT_THAT(read_known_words(nlohmann::json()), IsEmpty());
  EXPECT_THAT(read_known_words({{"_class_name", "x"}}), IsEmpty());
  EXPECT_EQ(read_known_words({{"_tenon_knows", {{"a", {"b", "c"}}}}}), (KnownWords{{"a", {"b", "c"}}}));
  for (const nlohmann::json& bad :
       {nlohmann::json("words"), nlohmann::json({"a"}), nlohmann::json({{"a", "b"}}), nlohmann::json({{"a", {1}}})})
    EXPECT_THROW(read_known_words({{"_tenon_knows", bad}}), Error) << bad;
}

// Each word is one token of the model's own tokenizer, and the grader's prompts contain no others.
TEST(KnownWords, OfTheEmbeddedModelAreItsTokens) {
  const auto model = StableDiffusionModel::open("");
  ASSERT_FALSE(model->known_words().empty());
  for (const auto& [kind, words] : model->known_words())
    for (const std::string& word : words) EXPECT_EQ(model->tokenizer().encode(word).size(), 1u) << word;
  std::ifstream prompts(TENON_SOURCE_DIR "/tests/grader/prompts.txt");
  int count = 0;
  for (std::string line; std::getline(prompts, line);) {
    if (line.starts_with('#')) continue;
    const size_t begin = line.find('\t') + 1, end = line.find('\t', begin);
    EXPECT_THAT(unknown_in(model->known_words(), line.substr(begin, end - begin)), IsEmpty()) << line;
    ++count;
  }
  EXPECT_EQ(count, 100);
}

TEST(KnownWords, StandInTheReadme) {
  std::ifstream in(TENON_SOURCE_DIR "/README.md");
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  const size_t begin = all.find("It knows few words"), end = all.find("First tries", begin);
  ASSERT_NE(end, std::string::npos);
  std::string words = all.substr(begin, end - begin);
  std::ranges::replace_if(
      words, [](char c) { return !std::isalpha(static_cast<unsigned char>(c)); }, ' ');
  words = " " + words + " ";
  const auto model = StableDiffusionModel::open("");
  for (const auto& [kind, list] : model->known_words())
    for (const std::string& word : list) EXPECT_NE(words.find(" " + word + " "), std::string::npos) << word;
}

TEST(KnownWords, WarnOfPromptsAndSizes) {
  const TextToImage pipeline(StableDiffusionModel::open(""));
  const auto warnings = [&](const std::string& prompt, const std::string& negative, int64_t side, double scale) {
    ImageRequest r;
    r.prompt = prompt;
    r.negative = negative;
    r.width = r.height = side;
    r.cfg_scale = scale;
    return pipeline.warnings(pipeline.complete(r), "the list");
  };
  EXPECT_THAT(warnings("a red circle on a white background", "", 0, 1.5), IsEmpty());
  EXPECT_THAT(warnings("a castle", "ugly", 0, 1.5),
              ElementsAre(AllOf(HasSubstr("'castle'"), HasSubstr("(words it knows: the list)")), HasSubstr("'ugly'")));
  EXPECT_THAT(warnings("a circle", "ugly", 0, 1), IsEmpty()) << "without guidance it is not looked at";
  EXPECT_THAT(warnings("a circle", "", 64, 1), ElementsAre(HasSubstr("128x128 only, not on 64x64")));
  std::string many;
  for (char c = 'a'; c <= 'z'; ++c) many += std::string(100, c) + " ";
  const auto long_one = warnings(many, "", 0, 1);
  ASSERT_EQ(long_one.size(), 1u);
  EXPECT_LE(long_one[0].size(), 480u);
  EXPECT_THAT(long_one[0], HasSubstr("and 18 more"));
}

// Brackets are text to Z-Image, so no weight in them can be wrong.
TEST(KnownWords, BracketsWeightOnlyWhatReadsThem) {
  const ZImageGenerator pipeline(ZImageModel::open("z-image-shapes"));
  ImageRequest r;
  r.prompt = "a red circle (ratio:1.2.3)";
  r.negative = "(a:1.5.)";
  r.cfg_scale = 2;
  const std::vector<std::string> warnings = pipeline.warnings(pipeline.complete(r), "the list");
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("does not know 'ratio', '1', '2', '3',"), HasSubstr("'1', '5',")));
}

TEST(KnownWords, OtherModelsAreNotLimited) {
  EXPECT_THAT(StableDiffusionModel::open("random:tiny")->known_words(), IsEmpty());
}

TEST(Prompts, NetworksBesideTheModelAreRefused) {
  const TextToImage pipeline(StableDiffusionModel::open(""));
  const auto refused = [&](const std::string& prompt, const std::string& negative = "") {
    ImageRequest r;
    r.prompt = prompt;
    r.negative = negative;
    try {
      pipeline.complete(r);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Usage);
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused("a cat", "a <lora:fur:0.8> in a hat"),
              HasSubstr("'<lora:fur:0.8>' asks for a LoRA, which cannot be loaded here"));
  EXPECT_THAT(refused("a cat", "<LoRA:fur>"), HasSubstr("[negative prompt]"));
  EXPECT_THAT(refused("<lyco:x>"), HasSubstr("LyCORIS"));
  EXPECT_THAT(refused("<hypernet:x:1>"), HasSubstr("hypernetwork"));
  EXPECT_THAT(refused("a, (embedding:bad-hands:1.2)"),
              HasSubstr("'embedding:bad-hands:1.2' asks for a textual inversion"));
  EXPECT_THAT(refused("a cat <3, <lora>, embedding: none, unembedding:x"), IsEmpty());
  EXPECT_LE(refused("", "<lora:" + std::string(5000, 'x') + ">").size(), 480u);
}

}  // namespace
}  // namespace tenon
