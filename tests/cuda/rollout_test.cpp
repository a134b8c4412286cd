// Rollout and training on the emulated device in bf16: single tokens over a cache and whole texts go through different
// cores and tiles, and give bit-identical probabilities.
#include <gtest/gtest.h>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/pipelines/random_weights.h"
#include "tenon/train/decoder_loss.h"
#include "tenon/train/policy_batch.h"
#include "tenon/train/rollout.h"
#include "tests/cuda/emulator.h"

namespace tenon::train {
namespace {

const RegisterBackend kEmulated("emulated-rollout", [](const BackendOptions&) {
  static const auto device = std::make_shared<cuda::test::Emulator>(cuda::test::EmulatorOptions{.one_order = true});
  return cuda::make_cuda_backend(device);
});

void compare(DecoderConfig c) {
  c.vocabulary = 256, c.layers = 2, c.theta = 1e4;
  const WeightShapes shapes = decoder_weights(c);
  const std::shared_ptr<Backend> backend = make_backend("emulated-rollout");
  Parameters parameters(backend, random_weights(shapes, 5), shapes, 0);
  Rollout rollout(parameters.store(), c, nn::kBf16);
  std::vector<std::vector<int32_t>> prompts;
  for (const int n : {70, 41}) {
    prompts.emplace_back();
    for (int i = 0; i < n; ++i) prompts.back().push_back((31 * i * i + 7 * n) % 255);
  }
  const auto made = rollout.complete(prompts, {1, 2}, {24, false, {}});
  const PolicyBatch batch(prompts, made, {1, -1}, false, 16);
  Graph g;
  Gradients gradients(parameters, decoder_policy_loss(g, c, {batch.rows, batch.tokens}, {}, nn::kBf16),
                      {.precision = training_precision(DType::BF16)});
  batch.give(gradients, 0, batch.rows, false);
  gradients.run();
  std::vector<float> logp = gradients.get("nll");
  for (float& x : logp) x = -x;
  EXPECT_EQ(batch.largest_ratio_error(logp), 0);
}

TEST(EmulatedRollout, TrainingSeesTheSameProbabilities) {
  DecoderConfig c;
  c.width = 64, c.hidden = 128, c.heads = 4, c.key_heads = 2, c.head_width = 32;
  compare(c);
}
// Rows that their own launch would give fewer lanes than a product that computes them as its prologue.
TEST(EmulatedRollout, OddWidths) {
  DecoderConfig c;
  c.width = 576, c.hidden = 200, c.heads = 9, c.key_heads = 3, c.head_width = 64;
  compare(c);
}
TEST(EmulatedRollout, WideHeads) {
  DecoderConfig c;
  c.width = 64, c.hidden = 128, c.heads = 4, c.key_heads = 2, c.head_width = 128;
  compare(c);
}
TEST(EmulatedRollout, NormedHeads) {
  DecoderConfig c;
  c.width = 64, c.hidden = 128, c.heads = 4, c.key_heads = 2, c.head_width = 128, c.head_norm = true;
  compare(c);
}

// Embeddings are looked up in the memory that the output layer multiplies by.
TEST(EmulatedRollout, TiedEmbeddingsAreStoredOnce) {
  DecoderConfig c;
  c.width = 64, c.hidden = 64, c.heads = 2, c.key_heads = 1, c.head_width = 32, c.layers = 1, c.vocabulary = 1000;
  c.tied = true;
  const WeightShapes shapes = decoder_weights(c);
  const std::shared_ptr<Backend> backend = make_backend("emulated-rollout");
  Parameters parameters(backend, random_weights(shapes, 5), shapes, 0);
  Rollout rollout(parameters.store(), c, nn::kBf16);
  static_cast<void>(rollout.complete({{1, 2, 3}, {4, 5}}, {1, 2}, {3, false, {}}));
  const int64_t table = c.vocabulary * c.width * 2, all = parameters.count() * 2;
  EXPECT_LT(parameters.store()->counters().bytes, all + table / 2);
}

}  // namespace
}  // namespace tenon::train
