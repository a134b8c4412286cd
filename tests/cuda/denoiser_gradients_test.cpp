// A LoRA's gradients of a whole small network, on the emulated device in 16 bits and e4m3, against the CPU's in f32:
// covers what single launches do not show, such as which kernels a plan chooses.
#include <gtest/gtest.h>

#include <cmath>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/io/random.h"
#include "tenon/pipelines/random_weights.h"
#include "tenon/train/adapter.h"
#include "tenon/train/denoising.h"
#include "tenon/train/lora_layers.h"
#include "tests/cuda/emulator.h"

namespace tenon::train {
namespace {

// With so few multiprocessors each layer of a small network and its branch are one product.
std::unique_ptr<Backend> backend_with(int64_t gigabytes) {
  return cuda::make_cuda_backend(std::make_shared<cuda::test::Emulator>(
      cuda::test::EmulatorOptions{.multiprocessors = 1, .memory_bytes = gigabytes << 30}));
}
const RegisterBackend kEmulated("emulated-gradients", [](const BackendOptions&) { return backend_with(4); });
const RegisterBackend kRoomy("emulated-roomy", [](const BackendOptions&) { return backend_with(80); });

using Values = std::map<std::string, std::vector<float>>;

std::vector<float> random(int64_t n, unsigned seed, float scale = 1) {
  std::vector<float> out(static_cast<size_t>(n));
  TorchGenerator(seed).randn(out);
  for (float& x : out) x *= scale;
  return out;
}

// With respect to the adapter's weights, for a 64 x 64 picture and a text of 32 tokens.
Values gradients_on(const std::string& device, const std::string& type) {
  constexpr int64_t kSide = 64, kTextRows = 32, kTextWidth = 128, kRank = 16;
  const std::shared_ptr<Backend> backend = make_backend(device);
  const DType stored = type == "f32" ? DType::F32 : DType::BF16;
  const auto model =
      open_as<TrainableDenoiser>("z-image-shapes", {.backend = backend, .type = stored, .encodes = false});
  const auto weights =
      std::make_shared<const std::set<std::string>>(target_weights(model->shapes(), attention_targets()));
  const nn::SideBranches branches{kRank, weights, 1};
  const WeightShapes leaves = branch_shapes(model->shapes(), *weights, kRank);
  Parameters parameters(backend, with_new_adapter(model->weights(), leaves, 1), leaves, 0);
  for (const Parameter& p : parameters.all()) parameters.set(p.master, random(p.count(), 7, 0.05f));
  parameters.publish();

  const DenoisingShape shape{1, model->latent_shape(kSide, kSide), kTextRows, kTextWidth};
  const DenoiserTraining training = model->training({});
  Graph g;
  Gradients gradients(parameters, adapter_gradients(g, *model, shape, training.target, branches, {stored, stored}),
                      {.precision = training_precision(*model, parse_dtype(type), branches), .merge_siblings = false});
  PictureSet pictures;
  pictures.pictures.push_back({{random(2 * shape.latent.numel(), 1)}, 0, {kSide, kSide}});
  pictures.texts.push_back({random(kTextRows * kTextWidth, 1), kTextRows, kTextWidth});
  const DenoisingData data{model.get(), &pictures, training, {}, 1};
  DenoisingBatch batch(data, shape);
  batch.add(0, 1);
  batch.give(gradients);
  gradients.run();
  Values out;
  for (const Parameter& p : parameters.all()) out[p.name] = parameters.values(p.grad, p.count());
  return out;
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double dot = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i)
    dot += double{a[i]} * b[i], aa += double{a[i]} * a[i], bb += double{b[i]} * b[i];
  return dot / std::sqrt(aa * bb);
}

TEST(EmulatedGradients, PointWhereTheOnesOfTheCpuDo) {
  const Values want = gradients_on("cpu", "f32");
  // The roomy device reads transposed copies of e4m3 weights.
  const std::string small = "emulated-gradients", roomy = "emulated-roomy";
  for (const auto& [device, type, least] :
       {std::tuple{small, "bf16", 0.98}, std::tuple{small, "e4m3", 0.8}, std::tuple{roomy, "e4m3", 0.8}}) {
    const Values got = gradients_on(device, type);
    for (const auto& [name, values] : want)
      EXPECT_GT(cosine(got.at(name), values), least) << device << " " << type << " " << name;  // false for NaN
  }
}

}  // namespace
}  // namespace tenon::train
