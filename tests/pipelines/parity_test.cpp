// Whole generations by the tiny model against diffusers' recorded runs: text, guidance, sampler, noise, picture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/pipelines/families/stable_diffusion/text_to_image.h"
#include "tests/fixtures/checkpoint.h"
#include "tests/fixtures/parity.h"

namespace tenon {
namespace {
namespace fs = std::filesystem;

// For a whole picture of the tiny model, in f32.
constexpr double kTolerance = 1e-3;

class WholePictures : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::temp_directory_path() / ("tenon-pictures-" + std::to_string(::getpid()));
    fixtures::write_diffusers_folder(folder_ / "folder", DType::F32);
    fixtures::write_single_file(folder_ / "single.safetensors", DType::F32);
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }

  static ImageRequest request_of(const nlohmann::json& c) {
    ImageRequest r;
    r.prompt = c.at("prompt");
    r.negative = c.at("negative_prompt");
    r.width = c.at("width");
    r.height = c.at("height");
    r.steps = c.at("steps");
    r.cfg_scale = c.at("guidance");
    r.sampler = c.at("sampler");
    r.seed = c.at("seeds").at(0);
    r.batch = static_cast<int64_t>(c.at("seeds").size());
    if (!c.contains("image")) return r;
    r.strength = c.at("strength");
    InitImage init;
    init.width = r.width;
    init.height = r.height;
    const std::vector<float> planes = fixtures::input(c.at("image"));
    const size_t area = static_cast<size_t>(r.width * r.height);
    init.values.resize(planes.size());
    for (size_t i = 0; i < area; ++i)
      for (size_t k = 0; k < 3; ++k) init.values[i * 3 + k] = 2 * planes[k * area + i] - 1;
    r.init = init;
    return r;
  }

  // The model with a scheduler_config.json that has these keys besides the class and its betas.
  static std::shared_ptr<const StableDiffusionModel> with_scheduler(const char* of_class, nlohmann::json keys) {
    fs::copy(folder_ / "folder", folder_ / "other", fs::copy_options::recursive | fs::copy_options::skip_existing);
    keys.update({{"_class_name", of_class},
                 {"beta_start", 0.00085},
                 {"beta_end", 0.012},
                 {"beta_schedule", "scaled_linear"},
                 {"set_alpha_to_one", false}});
    std::ofstream(folder_ / "other/scheduler/scheduler_config.json") << keys;
    return StableDiffusionModel::open((folder_ / "other").string());
  }

  static fs::path folder_;
};
fs::path WholePictures::folder_;

TEST_F(WholePictures, AgreeWithDiffusers) {
  const fixtures::Parity parity;
  PipelineOptions options;
  options.type = DType::F32;
  options.keep_networks = true;
  TextToImage pipeline(StableDiffusionModel::open((folder_ / "folder").string()), options);
  int checked = 0;
  for (const auto& c : parity.cases()) {
    const std::string kind = c.at("kind");
    if (kind != "text-to-image" && kind != "image-to-image") continue;
    SCOPED_TRACE(c.at("name"));
    const ImageResult result = pipeline.generate(request_of(c));
    std::string last;
    int calls = -1;
    for (const auto& [name, about] : c.at("expect").items())
      if (name.starts_with("latents.") && std::stoi(name.substr(8)) > calls) {
        last = name;
        calls = std::stoi(name.substr(8));
      }
    ASSERT_FALSE(last.empty());
    EXPECT_TRUE(parity.expected(c, last).agrees_with(result.latents, kTolerance));
    const fixtures::Expected image = parity.expected(c, "image");
    std::vector<float> planes;
    for (const Image& picture : result.images)
      for (size_t k = 0; k < 3; ++k)
        for (size_t i = 0; i < picture.pixels.size() / 3; ++i)
          planes.push_back(static_cast<float>(picture.pixels[i * 3 + k]) / 255.0f);
    EXPECT_TRUE(image.agrees_with(planes, kTolerance + 0.51 / 255));
    ++checked;
  }
  EXPECT_GE(checked, 12);
}

TEST_F(WholePictures, AreTheSameFromASingleFileAndForAnyThreads) {
  const fixtures::Parity parity;
  // The single file has no tokenizer: compares networks through the folder with one and two threads, and configs by
  // file.
  ImageRequest r = request_of(parity.at("text-to-image euler 56x40 b1 g7.5"));
  PipelineOptions options;
  options.threads = 1;
  TextToImage one(StableDiffusionModel::open((folder_ / "folder").string()), options);
  options.threads = 2;
  TextToImage two(StableDiffusionModel::open((folder_ / "folder").string()), options);
  EXPECT_EQ(one.generate(r).images, two.generate(r).images);
  const auto single = StableDiffusionModel::open((folder_ / "single.safetensors").string());
  EXPECT_EQ(single->config().unet.levels.size(), 4u);
  EXPECT_THROW(single->tokenizer(), Error);
  single->weights("unet");
}

// diffusers' pipeline sets steps_offset to 1 and clip_sample to false, so these files draw what was recorded with both.
TEST_F(WholePictures, OutdatedSchedulerFiles) {
  const fixtures::Parity parity;
  const auto& c = parity.at("text-to-image ddim 40x56 b1 g1");
  const fixtures::Expected expected = parity.expected(c, "latents.3");
  PipelineOptions options;
  options.type = DType::F32;
  for (const nlohmann::json& keys :
       {nlohmann::json::object(), nlohmann::json{{"steps_offset", 0}, {"clip_sample", true}},
        nlohmann::json{{"steps_offset", nullptr}, {"clip_sample", nullptr}}})
    for (const char* sampler : {"", "ddim"}) {
      SCOPED_TRACE(keys.dump() + sampler);
      TextToImage pipeline(with_scheduler("DDIMScheduler", keys), options);
      ImageRequest r = request_of(c);
      r.sampler = sampler;
      EXPECT_TRUE(expected.agrees_with(pipeline.generate(r).latents, kTolerance));
    }
}

// As diffusers 0.42.1 has it in the pipeline, and then in from_config of the pipeline's scheduler.
TEST_F(WholePictures, SettingsForOtherSamplers) {
  const auto expect = [&](const StableDiffusionModel& model, const char* sampler, int offset, bool clips) {
    const Settings s = model.scheduler_config(sampler);
    EXPECT_EQ(s.integer("steps_offset", 0, 0, 10), offset) << sampler;
    EXPECT_EQ(s.flag("clip_sample", true), clips) << sampler;
  };
  for (const auto& [of_class, own, other] : {std::array{"DDIMScheduler", "ddim", "euler"},
                                             {"PNDMScheduler", "PLMS", "ddim"},
                                             {"DPMSolverMultistepScheduler", "DPM++ 2M Karras", "ddim"}}) {
    SCOPED_TRACE(of_class);
    const auto lacks = with_scheduler(of_class, nlohmann::json::object());
    expect(*lacks, "", 1, false);
    expect(*lacks, own, 1, false);
    expect(*lacks, other, 0, true);
    const auto has = with_scheduler(of_class, {{"steps_offset", 0}, {"clip_sample", true}});
    expect(*has, own, 1, false);
    expect(*has, other, 1, false);
  }
  expect(*with_scheduler("UniPCMultistepScheduler", nlohmann::json::object()), "ddim", 0, true);
  const auto model = with_scheduler("DDIMScheduler", nlohmann::json::object());
  EXPECT_THROW(model->scheduler_config("none"), Error);
}

TEST_F(WholePictures, OutdatedSchedulerFilesAreReported) {
  const auto warnings = [&](const char* of_class, const nlohmann::json& keys) {
    std::ostringstream out;
    const auto before = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(out)));
    with_scheduler(of_class, keys);
    spdlog::set_default_logger(before);
    return out.str();
  };
  EXPECT_THAT(warnings("DDIMScheduler", nlohmann::json::object()),
              testing::HasSubstr("scheduler_config.json: using steps_offset 1 instead of 0 and clip_sample false "
                                 "instead of true, as diffusers' StableDiffusionPipeline does"));
  EXPECT_THAT(warnings("PNDMScheduler", {{"steps_offset", 3}}),
              testing::AllOf(testing::HasSubstr("steps_offset 1 instead of 3, as"),
                             testing::Not(testing::HasSubstr("clip_sample"))));
  EXPECT_THAT(warnings("PNDMScheduler", {{"steps_offset", -1}}),
              testing::HasSubstr("steps_offset 1 instead of -1, as"));
  EXPECT_THAT(warnings("PNDMScheduler", {{"steps_offset", 1}, {"clip_sample", true}}),
              testing::HasSubstr("using clip_sample false instead of true, as"));
  EXPECT_EQ(warnings("PNDMScheduler", {{"steps_offset", 1}}), "");
  EXPECT_EQ(warnings("DDIMScheduler", {{"steps_offset", 1}, {"clip_sample", false}}), "");
  EXPECT_THROW(with_scheduler("DDIMScheduler", {{"steps_offset", "one"}}), Error);
}

TEST_F(WholePictures, ABatchIsItsImages) {
  const fixtures::Parity parity;
  ImageRequest r = request_of(parity.at("text-to-image ddim 56x40 b2 g7.5"));
  TextToImage pipeline(StableDiffusionModel::open((folder_ / "folder").string()));
  const ImageResult both = pipeline.generate(r);
  r.seed += 1;
  r.batch = 1;
  EXPECT_EQ(pipeline.generate(r).images.at(0), both.images.at(1));
}

TEST_F(WholePictures, FusionChangesNothing) {
  const fixtures::Parity parity;
  const ImageRequest r = request_of(parity.at("text-to-image ddim 40x56 b1 g1"));
  PipelineOptions options;
  options.type = DType::F32;
  TextToImage fused(StableDiffusionModel::open((folder_ / "folder").string()), options);
  options.fusion = false;
  TextToImage apart(StableDiffusionModel::open((folder_ / "folder").string()), options);
  const std::vector<float> a = fused.generate(r).latents, b = apart.generate(r).latents;
  EXPECT_TRUE(close(a, b, Tolerance{1e-3}));
}

// Text, VAE and every step check for a stop before each launch, both when preparing and when running; a pipeline that
// was stopped draws the same picture afterwards.
TEST_F(WholePictures, StopAnywhere) {
  const fixtures::Parity parity;
  const ImageRequest r = request_of(parity.at("text-to-image euler 56x40 b1 g7.5"));
  int asked = 0, steps = 0, limit = std::numeric_limits<int>::max();
  std::vector<int> asked_at_step;
  const StopScope scope([&] { return ++asked > limit; });
  TextToImage pipeline(StableDiffusionModel::open((folder_ / "folder").string()));
  asked = 0;
  const ImageResult whole = pipeline.generate(r, [&](const Progress&) { asked_at_step.push_back(asked); });
  const int all = asked, first = asked_at_step.front(), last = asked_at_step.back();
  EXPECT_GE(asked_at_step[1] - first, 100) << "a step of the tiny UNet has more launches than that";
  EXPECT_GE(all - last, 30) << "the VAE asks too";
  for (const auto& [stop_at, steps_done] : {std::pair{0, 0},
                                            {5, 0},
                                            {first / 2, 0},
                                            {(first + asked_at_step[1]) / 2, 1},
                                            {(last + all) / 2, static_cast<int>(asked_at_step.size())}}) {
    asked = steps = 0;
    limit = stop_at;
    try {
      pipeline.generate(r, [&](const Progress&) { ++steps; });
      FAIL() << "not stopped at " << stop_at;
    } catch (const Error& e) {
      EXPECT_EQ(e.exit_code(), 130);
    }
    EXPECT_EQ(asked, stop_at + 1);
    EXPECT_EQ(steps, steps_done);
  }
  limit = std::numeric_limits<int>::max();
  EXPECT_EQ(pipeline.generate(r).images, whole.images);
}

TEST_F(WholePictures, BadRequests) {
  const fixtures::Parity parity;
  ImageRequest r = request_of(parity.at("text-to-image euler 56x40 b1 g7.5"));
  TextToImage pipeline(StableDiffusionModel::open((folder_ / "folder").string()));
  const auto rejects = [&](auto change) {
    ImageRequest bad = r;
    change(bad);
    EXPECT_THROW(pipeline.complete(bad), Error);
  };
  rejects([](ImageRequest& b) { b.width = 57; });
  rejects([](ImageRequest& b) { b.height = -8; });
  rejects([](ImageRequest& b) { b.steps = 1001; });
  rejects([](ImageRequest& b) { b.batch = 0; });
  ImageRequest huge = r;
  huge.width = huge.height = 32768;
  try {
    pipeline.check_fits(huge);
    FAIL() << "fits";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 4);
    EXPECT_NE(std::string(e.what()).find("largest"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tenon
