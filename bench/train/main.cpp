// A training step of a small decoder (Qwen2's layout), in milliseconds: forward, loss, gradients, norm, AdamW, packed
// weights. bench/train_torch.py runs it beside PyTorch.
//
//   bench_train ROWS TOKENS VOCABULARY WIDTH HIDDEN LAYERS HEADS KEY_HEADS THREADS STEPS
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tenon/pipelines/random_weights.h"
#include "tenon/train/decoder_loss.h"
#include "tenon/train/updater.h"

int main(int argc, char** argv) {
  using namespace tenon;
  if (argc != 11) return std::fprintf(stderr, "expected ten numbers\n"), 2;
  const auto number = [&](int i) { return std::atoll(argv[i]); };
  DecoderConfig c;
  c.vocabulary = number(3), c.width = number(4), c.hidden = number(5), c.layers = number(6);
  c.heads = number(7), c.key_heads = number(8), c.head_width = c.width / c.heads, c.theta = 1e4;
  const train::BatchShape shape{number(1), number(2), 512};
  const std::shared_ptr<Backend> backend = make_backend("cpu", {static_cast<int>(number(9))});
  const WeightShapes shapes = decoder_weights(c);
  train::Parameters parameters(backend, random_weights(shapes, 1), shapes, 2);
  Graph g;
  train::Gradients gradients(parameters, train::decoder_cross_entropy(g, c, shape, nn::kF32));
  train::Updater updater(parameters, make_optimizer("adamw", backend), 1);
  std::vector<int32_t> ids(static_cast<size_t>(shape.rows * shape.tokens));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * i % static_cast<size_t>(c.vocabulary));
  gradients.set("tokens", {DType::I32, {shape.rows, shape.tokens}, ids.data()});
  gradients.set("target", {DType::I32, {shape.rows, shape.tokens}, ids.data()});
  std::vector<double> passes, steps;
  for (int64_t i = 0; i < number(10) + 2; ++i) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    gradients.run();
    const auto middle = Clock::now();
    updater.step(1e-4);
    const auto end = Clock::now();
    passes.push_back(std::chrono::duration<double, std::milli>(middle - begin).count());
    steps.push_back(std::chrono::duration<double, std::milli>(end - begin).count());
  }
  const auto median = [](std::vector<double> v) {
    v.erase(v.begin(), v.begin() + 2);
    std::ranges::sort(v);
    return v[v.size() / 2];
  };
  std::printf("{\"step_ms\": %.3f, \"gradients_ms\": %.3f, \"launches\": %d, \"parameters\": %lld}\n", median(steps),
              median(passes), gradients.plan().counts().total, static_cast<long long>(parameters.count()));
  return 0;
}
