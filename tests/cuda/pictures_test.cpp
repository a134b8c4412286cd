// Whole pictures of the embedded model: every plan of Stable Diffusion on the emulated device, against the CPU's.
#include <gtest/gtest.h>

#include <cmath>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/core/error.h"
#include "tenon/pipelines/families/stable_diffusion/text_to_image.h"
#include "tests/cuda/emulator.h"
#include "tests/cuda/gpu_test.h"

namespace tenon {
namespace {

const RegisterBackend kEmulated("emulated", [](const BackendOptions& options) {
  static const auto device = std::make_shared<cuda::test::Emulator>(),
                    invariant =
                        std::make_shared<cuda::test::Emulator>(cuda::test::EmulatorOptions{.batch_invariant = true});
  return cuda::make_cuda_backend(options.batch_invariant ? invariant : device);
});

constexpr int64_t kEmulatedSide = 32;

struct Drawn {
  bool batch_invariant = false;
  int64_t batch = 1;
  uint64_t seed = 3;  ///< of the first picture
};

// One step on the emulator, where it takes seconds; two on a GPU.
std::vector<float> latents(const std::string& device, DType type, int64_t side, const Drawn& drawn = {}) {
  PipelineOptions options;
  options.device = device;
  options.type = type;
  options.batch_invariant = drawn.batch_invariant;
  TextToImage pipeline(StableDiffusionModel::open(""), options);
  ImageRequest r;
  r.prompt = "a red circle on a white background";
  r.width = r.height = side;
  r.steps = side > kEmulatedSide ? 2 : 1;
  r.seed = drawn.seed;
  r.batch = drawn.batch;
  const ImageResult result = pipeline.generate(r);
  EXPECT_EQ(result.images.at(0).pixels.size(), static_cast<size_t>(3 * side * side));
  return result.latents;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

TEST(EmulatedPictures, F32IsTheCpus) {
  const std::vector<float> got = latents("emulated", DType::F32, kEmulatedSide);
  const std::vector<float> want = latents("cpu", DType::F32, kEmulatedSide);
  ASSERT_EQ(got.size(), want.size());
  EXPECT_LE(distance(got, want), 1e-4);
  EXPECT_EQ(got, latents("emulated", DType::F32, kEmulatedSide)) << "two runs differ";
}

// Guidance amplifies the difference between roundings: the CPU's own bf16 is as far away.
TEST(EmulatedPictures, HalfTypesAreNearF32) {
  const std::vector<float> want = latents("cpu", DType::F32, kEmulatedSide);
  const std::vector<float> cpu = latents("cpu", DType::BF16, kEmulatedSide);
  const std::vector<float> bf16 = latents("emulated", DType::BF16, kEmulatedSide);
  const std::vector<float> f16 = latents("emulated", DType::F16, kEmulatedSide);
  EXPECT_LE(distance(bf16, want), 2 * distance(cpu, want));
  EXPECT_LE(distance(f16, want), 0.5 * distance(cpu, want));
}

// Whether the last of three pictures equals the same picture drawn alone.
bool is_its_own(const std::string& device, DType type, bool batch_invariant, int64_t side) {
  const std::vector<float> three = latents(device, type, side, {batch_invariant, 3}),
                           alone = latents(device, type, side, {batch_invariant, 1, 5});
  return three.size() == 3 * alone.size() && std::equal(alone.begin(), alone.end(), three.end() - std::ssize(alone));
}

TEST(BatchInvariant, AnEmulatedPictureIsTheSameInABatch) {
  // At 32 x 32 sums are so short that one picture's few rows and three pictures' many add up alike.
  EXPECT_FALSE(is_its_own("emulated", DType::F16, false, 40)) << "what is there to fix?";
  EXPECT_TRUE(is_its_own("emulated", DType::BF16, true, kEmulatedSide));  // f16's launches: EveryLaunchOfAUNet
}

TEST(BatchInvariant, ACpuPictureIsTheSameInABatch) {
  for (const DType type : {DType::BF16, DType::F32}) EXPECT_TRUE(is_its_own("cpu", type, false, 128)) << name_of(type);
}

class GpuPictures : public GpuTest {};

TEST_F(GpuPictures, HalfTypesAreNearF32) {
  const std::vector<float> want = latents("cpu", DType::F32, 128), cpu = latents("cpu", DType::BF16, 128);
  for (DType type : {DType::BF16, DType::F16, DType::F32}) {
    const std::vector<float> got = latents("cuda", type, 128);
    EXPECT_LE(distance(got, want), type == DType::F32 ? 1e-4 : 2 * distance(cpu, want)) << name_of(type);
    EXPECT_EQ(got, latents("cuda", type, 128)) << name_of(type) << ": two runs differ";
  }
}

TEST_F(GpuPictures, APictureIsTheSameInABatch) {
  for (DType type : {DType::BF16, DType::F16})
    for (const int64_t side : {128, 256}) EXPECT_TRUE(is_its_own("cuda", type, true, side)) << name_of(type) << side;
}

}  // namespace
}  // namespace tenon
