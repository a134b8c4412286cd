// Features of pictures: checkpoints of every layout from a folder, preprocessing, batches, principal components.
#include "tenon/pipelines/families/image_encoder/embedding.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/models/hash_weights.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/pipelines/model_parts.h"

namespace tenon {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;

Image picture(int64_t width, int64_t height, int shade) {
  Image image{width, height, 3, {}};
  for (int64_t i = 0; i < width * height * 3; ++i)
    image.pixels.push_back(static_cast<uint8_t>((i * 7 + i / 50 * 31 + shade) % 256));
  return image;
}

class Embed : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tenon-embed-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A checkpoint with the names and shapes of a fixture's case and made-up weights, except those given.
  fs::path write(const std::string& name, const std::map<std::string, std::vector<float>>& given = {}) const {
    const json all = json::parse(std::ifstream(TENON_SOURCE_DIR "/tests/fixtures/vit.json"));
    for (const json& c : all["cases"]) {
      if (c["name"] != name) continue;
      std::vector<std::vector<float>> values;
      std::vector<TensorData> tensors;
      for (const auto& [tensor, dims] : c["stored"].items()) {
        const Shape shape(std::span<const int64_t>(dims.get<std::vector<int64_t>>()));
        values.emplace_back(static_cast<size_t>(shape.numel()));
        random_weight(tensor, shape, DType::F32, 0, shape.numel(), values.back().data());
        if (const auto own = given.find(tensor); own != given.end()) values.back() = own->second;
        tensors.push_back({tensor, DType::F32, shape, std::as_bytes(std::span(values.back()))});
      }
      const fs::path to = folder_ / name;
      fs::create_directories(to);
      write_safetensors(to / "model.safetensors", tensors);
      if (!c["config"].is_null()) std::ofstream(to / "config.json") << c["config"].dump();
      return to;
    }
    throw std::runtime_error("no case " + name);
  }
  static EmbeddingOptions f32() {
    EmbeddingOptions o;
    o.type = DType::F32;
    o.side = 56;
    return o;
  }

  fs::path folder_;
};

TEST_F(Embed, ReadsEveryLayoutAndChoosesItsPreprocessing) {
  for (const auto& [name, kind, short_side, side] :
       {std::tuple{"timm-registers", "timm", 56, 56}, {"original", "hf", 256, 224}, {"transformers", "hf", 256, 224}}) {
    const fs::path path = write(name);
    ASSERT_TRUE(ImageEncoder::reads(path)) << name;
    const auto encoder = ImageEncoder::open(path.string());
    const ImagePreprocessing p = encoder->preprocessing();
    EXPECT_EQ(p.kind, kind) << name;
    EXPECT_EQ(p.short_side, short_side) << name;
    EXPECT_EQ(p.crop, side) << name;
    EXPECT_EQ(encoder->preprocessing("timm").kind, "timm");
    ImageEmbedding embed(encoder, f32());
    const std::vector<Embedding> e = embed(std::array{picture(80, 60, 3)});
    ASSERT_EQ(e.size(), 1u);
    EXPECT_EQ(e[0].feature.size(), 128u);
    EXPECT_EQ(e[0].rows, 4);
    EXPECT_EQ(e[0].patches.size(), 16u * 128u);
    EXPECT_EQ(open_parts(path.string())->parts(), std::vector<std::string>{"encoder"});
  }
}

TEST_F(Embed, WhatEmbedsDoesNotDraw) {
  const fs::path path = write("timm-registers");
  EXPECT_EQ(open_as<ImageEmbedder>(path.string(), f32())->with(f32())->patch_side(), 14);
  try {
    open_as<ImageGenerator>(path.string());
    ADD_FAILURE() << "drawn with";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Model);
    EXPECT_NE(std::string(e.what()).find("timm-registers] is of the family 'image encoder', which cannot draw"),
              std::string::npos)
        << e.what();
  }
}

TEST_F(Embed, SettingsOfTheFilesWin) {
  const fs::path hf = write("transformers-registers");
  std::ofstream(hf / "preprocessor_config.json")
      << R"({"size": {"shortest_edge": 64}, "crop_size": {"height": 42, "width": 42}, "image_mean": [0.5, 0.5, 0.5]})";
  const ImagePreprocessing p = ImageEncoder::open(hf.string())->preprocessing();
  EXPECT_EQ(p.short_side, 64);
  EXPECT_EQ(p.crop, 42);
  EXPECT_EQ(p.mean[2], 0.5);
  const fs::path timm = write("timm");
  std::ofstream(timm / "config.json") << R"({"pretrained_cfg": {"input_size": [3, 28, 28], "crop_pct": 0.875,
                                            "interpolation": "bicubic", "crop_mode": "center"}})";
  const ImagePreprocessing q = ImageEncoder::open(timm.string())->preprocessing();
  EXPECT_EQ(q.short_side, 32);
  EXPECT_EQ(q.crop, 28);
}

// What transformers computes from a pixel x: (x * rescale_factor - mean) / deviation, each step if it is on.
TEST_F(Embed, StepsOfTheFilesChangeValues) {
  const fs::path hf = write("transformers-registers");
  const auto of = [&](const std::string& keys) {
    std::ofstream(hf / "preprocessor_config.json")
        << R"({"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}, "do_resize": true,
               "do_center_crop": true, "do_convert_rgb": true, "image_processor_type": "BitImageProcessor",
               "resample": 3, "image_mean": [0.5, 0.25, 0], "image_std": [0.5, 0.5, 2])"
        << keys << "}";
    ImageEmbedding embed(ImageEncoder::open(hf.string()), f32());
    return embed.preprocess(Image{70, 70, 3, std::vector<uint8_t>(70 * 70 * 3, 102)});
  };
  const std::vector<float> usual =
      of(R"(, "do_rescale": true, "do_normalize": true, "rescale_factor": 0.00392156862745098)");
  EXPECT_FLOAT_EQ(usual[0], (0.4f - 0.5f) / 0.5f);
  EXPECT_EQ(of(""), usual);
  EXPECT_FLOAT_EQ(of(R"(, "do_normalize": false)")[1], 0.4f);
  EXPECT_FLOAT_EQ(of(R"(, "do_rescale": false)")[1], (102 - 0.25f) / 0.5f);
  EXPECT_FLOAT_EQ(of(R"(, "rescale_factor": 0.0078431372549)")[1], (0.8f - 0.25f) / 0.5f);
  EXPECT_FLOAT_EQ(of(R"(, "do_rescale": false, "do_normalize": false)")[2], 102);
}

TEST_F(Embed, SettingsThatAreAbsurdNameTheirFile) {
  const auto refused = [](const fs::path& model, const char* file, const std::string& text, const char* key) {
    std::ofstream(model / file) << text;
    try {
      ImageEncoder::open(model.string())->preprocessing();
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Model) << e.what();
      EXPECT_NE(std::string(e.what()).find(file), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find(key), std::string::npos) << e.what();
    }
  };
  const fs::path hf = write("transformers-registers"), timm = write("timm");
  const char *own = "preprocessor_config.json", *config = "config.json";
  refused(hf, own, R"({"size": 1e30})", "'size' is 1e+30");
  refused(hf, own, R"({"size": 18446744073709551615})", "'size' is 18446744073709551615");
  refused(hf, own, R"({"crop_size": {"height": -1}})", "'crop_size'");
  refused(hf, own, R"({"image_std": [1, 0, 1]})", "'image_std' is [1,0,1]");
  refused(hf, own, R"({"image_mean": [1, "x", 1]})", "'image_mean'");
  refused(hf, own, R"({"crop_size": {"height": 28, "width": 42}})", "'crop_size'");
  refused(hf, own, R"({"size": {"height": 64, "width": 64}})", "'size'");
  refused(hf, own, R"({"size": {"shortest_edge": 64, "longest_edge": 70}})", "expected only shortest_edge");
  refused(hf, own, R"({"do_center_crop": false})", "'do_center_crop' is false");
  refused(hf, own, R"({"do_resize": false})", "'do_resize' is false");
  refused(hf, own, R"({"resample": 2})", "'resample' is 2");
  refused(hf, own, R"({"rescale_factor": 0})", "'rescale_factor' is 0");
  refused(hf, own, R"({"image_processor_type": "ViTImageProcessor"})", "'image_processor_type'");
  refused(hf, own, "[]", "expected an object");
  refused(timm, config, R"({"pretrained_cfg": 3})", "pretrained_cfg");
  refused(timm, config, R"({"pretrained_cfg": {"crop_pct": 1e-300}})", "'crop_pct' is 1e-300");
  refused(timm, config, R"({"pretrained_cfg": {"crop_pct": "x"}})", "'crop_pct'");
  refused(timm, config, R"({"pretrained_cfg": {"std": [0, 0, 0]}})", "'std'");
  refused(timm, config, R"({"pretrained_cfg": {"input_size": [3, 28, 42]}})", "'input_size'");
  refused(timm, config, R"({"pretrained_cfg": {"interpolation": "bilinear"}})", "'interpolation' is \"bilinear\"");
  refused(timm, config, R"({"pretrained_cfg": {"crop_mode": "squash"}})", "'crop_mode' is \"squash\"");
}

TEST_F(Embed, APictureIsTheSameWhateverStandsBesideIt) {
  const auto encoder = ImageEncoder::open(write("timm-gated").string());
  const std::vector<Image> images{picture(60, 60, 1), picture(90, 57, 80), picture(57, 90, 160)};
  for (const std::optional<DType> type : {std::optional(DType::F32), std::optional(DType::BF16)}) {
    EmbeddingOptions o = f32();
    o.type = type;
    const std::vector<Embedding> together = ImageEmbedding(encoder, o)(images);
    ASSERT_EQ(together.size(), 3u);
    for (size_t i = 0; i < images.size(); ++i) {
      const std::vector<Embedding> alone = ImageEmbedding(encoder, o)(std::span(&images[i], 1));
      EXPECT_EQ(alone[0].feature, together[i].feature);
      EXPECT_EQ(alone[0].patches, together[i].patches);
    }
    EXPECT_NE(together[0].feature, together[1].feature);
    o.batch = 2;  // two runs, with two and one pictures
    EXPECT_EQ(ImageEmbedding(encoder, o)(images)[2].feature, together[2].feature);
  }
}

TEST_F(Embed, MakesOnePictureAtATime) {
  const auto encoder = ImageEncoder::open(write("timm").string());
  const std::vector<Image> images{picture(60, 60, 1), picture(90, 57, 80), picture(57, 90, 160)};
  EmbeddingOptions o = f32();
  o.batch = 2;
  const std::vector<Embedding> together = ImageEmbedding(encoder, o)(images);
  o.patches = false;
  std::vector<size_t> asked;
  const std::vector<Embedding> made = ImageEmbedding(encoder, o)(images.size(), [&](size_t i) {
    asked.push_back(i);
    return images[i];
  });
  EXPECT_EQ(asked, (std::vector<size_t>{0, 1, 2}));
  ASSERT_EQ(made.size(), 3u);
  for (size_t i = 0; i < made.size(); ++i) {
    EXPECT_EQ(made[i].feature, together[i].feature);
    EXPECT_EQ(made[i].rows, together[i].rows);
    EXPECT_TRUE(made[i].patches.empty());
  }
}

TEST_F(Embed, StaysUsableAfterAStop) {
  bool stop = false;
  const StopScope scope([&] { return stop; });
  ImageEmbedding embed(ImageEncoder::open(write("timm").string()), f32());
  const std::vector<Image> images{picture(60, 60, 1), picture(90, 57, 80)};
  const auto one = [&] { return embed(std::span(images).first(1))[0].feature; };
  const std::vector<float> before = one();
  stop = true;
  EXPECT_THROW(embed(images), Error);  // while it prepares for two
  stop = false;
  EXPECT_EQ(one(), before);
}

TEST_F(Embed, PreprocessingNormalises) {
  const auto encoder = ImageEncoder::open(write("timm").string());
  ImageEmbedding embed(encoder, f32());
  Image grey{112, 70, 3, std::vector<uint8_t>(112 * 70 * 3, 255)};
  const std::vector<float> pixels = embed.preprocess(grey);
  ASSERT_EQ(pixels.size(), 56u * 56u * 3u);
  EXPECT_LE(std::abs(pixels[0] - (1 - 0.485f) / 0.229f), 1e-5f);
  EXPECT_LE(std::abs(pixels[2] - (1 - 0.406f) / 0.225f), 1e-5f);
}

// The class token's largest number is in another channel than the patches', whose scale is too large for them only.
TEST_F(Embed, PatchesThatOverflowAreAnError) {
  std::map<std::string, std::vector<float>> changed;
  std::vector<float>& scale = changed["norm.weight"];
  scale.assign(128, 1);
  scale[5] = 1e38F;
  std::vector<float>& positions = changed["pos_embed"];
  positions.assign(17 * 128, 0);
  for (size_t token = 0; token < 17; ++token) positions[token * 128 + (token == 0 ? 9 : 5)] = 1000;
  const auto encoder = ImageEncoder::open(write("timm", changed).string());
  EmbeddingOptions o = f32();
  o.patches = false;
  EXPECT_EQ(ImageEmbedding(encoder, o)(std::array{picture(60, 60, 1)}).size(), 1u) << "they were not asked for";
  o.patches = true;
  try {
    ImageEmbedding(encoder, o)(std::array{picture(60, 60, 1), picture(60, 60, 2)});
    ADD_FAILURE() << "not found";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Numeric) << e.what();
    EXPECT_NE(std::string(e.what()).find("the patches of picture 1 of 2 are not finite in f32"), std::string::npos)
        << e.what();
  }
}

// Patches on a line in feature space: the first component is their position on it, the others are flat or noise.
TEST(PrincipalComponents, FindTheLineThatPatchesLieOn) {
  Embedding e;
  e.feature.resize(16);
  e.rows = 4;
  e.columns = 8;
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 16; ++j)
      e.patches.push_back(static_cast<float>(i) * std::sin(1.0f + static_cast<float>(j)) + 5);
  const std::vector<Image> images = principal_components(std::array{e}, 2);
  ASSERT_EQ(images.size(), 1u);
  EXPECT_EQ(images[0].width, 16);
  EXPECT_EQ(images[0].height, 8);
  const auto red = [&](int64_t x, int64_t y) { return images[0].pixels[static_cast<size_t>((y * 16 + x) * 3)]; };
  EXPECT_EQ(std::min(red(0, 0), red(15, 7)), 0);
  EXPECT_EQ(std::max(red(0, 0), red(15, 7)), 255);
  EXPECT_EQ(red(0, 0), red(1, 1));  // two pixels per patch
  EXPECT_LE(std::abs(std::abs(red(2, 0) - red(0, 0)) - 255.0 / 31), 1);
}

TEST(PrincipalComponents, NeedPatches) {
  Embedding e;
  e.feature.resize(16);
  e.rows = e.columns = 2;
  const auto words_of = [](const Embedding& x) -> std::string {
    try {
      principal_components(std::array{x}, 1);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_NE(words_of(e).find("expected patches of 64 numbers, got 0"), std::string::npos) << words_of(e);
  e.patches.resize(48);
  EXPECT_NE(words_of(e).find("expected patches of 64 numbers, got 48"), std::string::npos) << words_of(e);
  e.feature.clear();
  EXPECT_NE(words_of(e).find("expected features of 1 numbers, got 0"), std::string::npos) << words_of(e);
}

TEST_F(Embed, RefusesWhatCannotBe) {
  const auto refused = [](ErrorKind kind, const std::string& words, const auto& act) {
    try {
      act();
      ADD_FAILURE() << "expected an error with: " << words;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), kind) << e.what();
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  };
  const fs::path path = write("timm");
  const auto encoder = ImageEncoder::open(path.string());
  EmbeddingOptions o = f32();
  o.side = 57;
  refused(ErrorKind::Usage, "the nearest is 56", [&] { ImageEmbedding(encoder, o); });
  o = f32();
  o.preprocessing = "clip";
  refused(ErrorKind::Usage, "expected timm or hf", [&] { ImageEmbedding(encoder, o); });
  o = f32();
  o.device = "null";
  refused(ErrorKind::Usage, "computes nothing", [&] { ImageEmbedding(encoder, o); });
  refused(ErrorKind::Usage, "20000x1 is too long",
          [&] { ImageEmbedding(encoder, f32())(std::array{picture(20000, 1, 0)}); });
  o = f32();
  o.batch = 1;
  ImageEmbedding one_by_one(encoder, o);
  refused(ErrorKind::Usage, "[picture 2 of 2] 1x20000 is too long", [&] {
    const StopScope none_is_computed([] { return true; });
    one_by_one(std::array{picture(20, 20, 0), picture(1, 20000, 0)});
  });
  refused(ErrorKind::Usage, "vit-g14", [] { ImageEncoder::open("random:resnet"); });
  refused(ErrorKind::Model, "no weights of an image encoder", [&] { ImageEncoder::open(folder_.string()); });
  // A block's tensor is missing.
  const json all = json::parse(std::ifstream(TENON_SOURCE_DIR "/tests/fixtures/vit.json"));
  const std::vector<float> zeros(128 * 588);
  std::vector<TensorData> tensors;
  for (const auto& [tensor, dims] : all["cases"][0]["stored"].items()) {
    const Shape shape(std::span<const int64_t>(dims.get<std::vector<int64_t>>()));
    if (tensor != "blocks.1.attn.proj.bias")
      tensors.push_back(
          {tensor, DType::F32, shape, std::as_bytes(std::span(zeros).first(static_cast<size_t>(shape.numel())))});
  }
  write_safetensors(path / "model.safetensors", tensors);
  refused(ErrorKind::Model, "blocks.1.attn.proj.bias", [&] { ImageEncoder::open(path.string()); });
}

}  // namespace
}  // namespace tenon
