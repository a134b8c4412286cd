// Checkpoints on disk and the networks: configurations from config.json or from the weights, reports of what is
// missing.
#include <gmock/gmock.h>

#include <unistd.h>

#include <filesystem>

#include "tenon/models/registry.h"
#include "tests/models/model_fixtures.h"

namespace tenon {
namespace {
using namespace models_test;
namespace fs = std::filesystem;

class CheckpointFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / ("tenon_models_" + std::string(test->name()) + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A safetensors file of zeros, with `prefix` before names.
  static void write(const fs::path& path, const std::vector<std::pair<std::string, WeightShapes>>& parts) {
    std::vector<std::byte> zeros;
    for (const auto& [prefix, weights] : parts)
      for (const auto& [name, shape] : weights)
        zeros.resize(std::max(zeros.size(), static_cast<size_t>(2 * shape.numel())));
    std::vector<TensorData> tensors;
    for (const auto& [prefix, weights] : parts)
      for (const auto& [name, shape] : weights)
        tensors.push_back(
            {prefix + name, DType::BF16, shape, std::span(zeros).first(static_cast<size_t>(2 * shape.numel()))});
    fs::create_directories(path.parent_path());
    write_safetensors(path, tensors);
  }
  void write_config(const std::string& component, const nlohmann::json& config) const {
    std::ofstream(folder_ / component / "config.json") << config;
  }
  // The tiny model as a diffusers folder.
  void write_tiny() const {
    StableDiffusionConfig c = model_preset("tiny").config;
    const auto& text = Parity::get().config("text");
    c.text.vocabulary = text["vocab_size"].get<int64_t>();
    write(folder_ / "unet/diffusion_pytorch_model.safetensors", {{"", unet_weights(c.unet)}});
    write(folder_ / "vae/diffusion_pytorch_model.safetensors", {{"", vae_weights(c.vae)}});
    write(folder_ / "text_encoder/model.safetensors", {{"", clip_text_weights(c.text)}});
    write_config("unet", Parity::get().config("unet"));
    write_config("vae", Parity::get().config("vae"));
    write_config("text_encoder", text);
    std::ofstream(folder_ / "model_index.json") << R"({"_class_name": "StableDiffusionPipeline"})";
  }
  fs::path folder_;
};

TEST_F(CheckpointFiles, FolderWithConfigurations) {
  write_tiny();
  const StableDiffusionCheckpoint checkpoint = StableDiffusionCheckpoint::open(folder_);
  const StableDiffusionConfig c = stable_diffusion_config(checkpoint);
  EXPECT_EQ(c.unet.levels[0].heads, 2);
  EXPECT_EQ(c.text.heads, 3);
  const auto reports = check_checkpoint(checkpoint, c);
  EXPECT_EQ(reports.size(), 3u);
  for (const auto& [name, report] : reports) EXPECT_EQ(report.str(), "") << name;
}

TEST_F(CheckpointFiles, FolderWithoutConfigurations) {
  write_tiny();
  for (const char* component : {"unet", "vae", "text_encoder"}) fs::remove(folder_ / component / "config.json");
  const StableDiffusionCheckpoint checkpoint = StableDiffusionCheckpoint::open(folder_);
  for (const auto& [name, report] : check_checkpoint(checkpoint, stable_diffusion_config(checkpoint)))
    EXPECT_EQ(report.str(), "") << name;
}

TEST_F(CheckpointFiles, MissingAndUnexpectedTensors) {
  write_tiny();
  WeightShapes weights = unet_weights(model_preset("tiny").config.unet);
  weights.erase("conv_out.bias");
  weights.insert({"conv_out.extra", {1}});
  write(folder_ / "unet/diffusion_pytorch_model.safetensors", {{"", weights}});
  const StableDiffusionCheckpoint checkpoint = StableDiffusionCheckpoint::open(folder_);
  const WeightReport report = check_checkpoint(checkpoint, stable_diffusion_config(checkpoint)).at("unet");
  EXPECT_THAT(report.missing, testing::ElementsAre("conv_out.bias"));
  EXPECT_FALSE(report.usable());
}

TEST_F(CheckpointFiles, PartsThatDoNotFit) {
  write_tiny();
  nlohmann::json config = Parity::get().config("unet");
  config["cross_attention_dim"] = 32;
  write_config("unet", config);
  const StableDiffusionCheckpoint checkpoint = StableDiffusionCheckpoint::open(folder_);
  try {
    stable_diffusion_config(checkpoint);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Model);
    EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr("cross_attention_dim 32"), testing::HasSubstr("24")));
  }
}

TEST_F(CheckpointFiles, RefusalNamesTheComponent) {
  write_tiny();
  nlohmann::json config = Parity::get().config("unet");
  config["use_linear_projection"] = true;
  write_config("unet", config);
  try {
    stable_diffusion_config(StableDiffusionCheckpoint::open(folder_));
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                testing::AllOf(testing::HasSubstr("unet/config.json"), testing::HasSubstr("use_linear_projection")));
  }
}

}  // namespace
}  // namespace tenon
