// Adding a constant to the whole input of a group norm changes nothing: pictures of the embedded model with 1,000 added
// to the bias before the second norm of every residual block.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "tenon/io/safetensors.h"
#include "tenon/pipelines/families/stable_diffusion/text_to_image.h"
#include "tenon/pipelines/model_files.h"
#include "tests/support/close.h"

namespace tenon {
namespace {
namespace fs = std::filesystem;

// Writes the file with `far` added to every first convolution's bias, stored in f32; returns their number.
int move_biases(const fs::path& from, const fs::path& to, float far) {
  const SafetensorsFile file = SafetensorsFile::open(from);
  std::vector<std::vector<float>> moved;
  std::vector<TensorData> tensors;
  for (const auto& [name, view] : file.tensors()) {
    if (!name.ends_with("conv1.bias")) {
      tensors.push_back({name, view.dtype, view.shape, {view.data, view.size}});
      continue;
    }
    std::vector<float>& values = moved.emplace_back();
    for (int64_t i = 0; i < view.shape.numel(); ++i)
      values.push_back(static_cast<float>(load_element(view.dtype, view.data, i)) + far);
    tensors.push_back({name, DType::F32, view.shape, std::as_bytes(std::span(values))});
  }
  write_safetensors(to, tensors);
  return static_cast<int>(moved.size());
}

Image picture(const fs::path& folder) {
  PipelineOptions options;
  options.type = DType::F32;
  ImageRequest r;
  r.prompt = "a red circle on a blue background";
  r.seed = 3;
  return TextToImage(StableDiffusionModel::open(folder.string()), options).generate(r).images.at(0);
}

TEST(GroupNormFarFromZero, PicturesStayWithinALevel) {
  const fs::path folder = fs::temp_directory_path() / ("tenon-far-" + std::to_string(::getpid()));
  const fs::path from = default_model_folder(), weights = "diffusion_pytorch_model.safetensors";
  fs::copy(from, folder, fs::copy_options::recursive);
  for (const auto& [part, blocks] : {std::pair{"unet", 22}, {"vae", 24}}) {
    fs::remove(folder / part / weights);
    EXPECT_EQ(move_biases(from / part / weights, folder / part / weights, 1000), blocks);
  }
  const Image want = picture(from), got = picture(folder);
  ASSERT_EQ(got.pixels.size(), want.pixels.size());
  EXPECT_TRUE(close(got.pixels, want.pixels, Tolerance{1, 0})) << "levels of 255";
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tenon
