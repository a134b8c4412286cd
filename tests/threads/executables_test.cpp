// Executables in several threads over one store: what several make at once is made only once, and every result is the
// same as alone.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <thread>

#include "tenon/expr/ops.h"
#include "tenon/models/clip_text.h"
#include "tenon/models/registry.h"
#include "tenon/pipelines/random_weights.h"
#include "tenon/runtime/executable.h"

namespace tenon {
namespace {

constexpr int kThreads = 4;

Plan plan_of(int64_t length) {
  Graph g;
  return make_plan(std::array{Result{"y", clip_text(g, model_preset("tiny").config.text, 1, length, nn::kF32)}});
}

std::vector<float> result(Executable& e, int64_t length, int seed) {
  std::vector<float> tokens(static_cast<size_t>(length));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed)) % 50);
  e.set("tokens", tokens);
  e.run_all();
  return e.get("y");
}

std::shared_ptr<WeightStore> fresh_store(const std::shared_ptr<Backend>& backend) {
  return std::make_shared<WeightStore>(backend, random_weights(clip_text_weights(model_preset("tiny").config.text), 3));
}

TEST(Threads, ExecutablesShareOneStore) {
  spdlog::default_logger();
  const std::shared_ptr<Backend> backend = make_backend("cpu", {2});
  std::vector<std::vector<float>> alone;
  for (int t = 0; t < kThreads; ++t) {
    Executable e(plan_of(5 + t), fresh_store(backend));
    alone.push_back(result(e, 5 + t, t));
  }
  const std::shared_ptr<WeightStore> store = fresh_store(backend);
  std::vector<std::vector<float>> found(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      Executable e(plan_of(5 + t), store);  // all at once, made from the same tensors
      for (int run = 0; run < 3; ++run) found[static_cast<size_t>(t)] = result(e, 5 + t, t);
      store->counters();
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(found, alone);
  Executable again(plan_of(5), store);
  EXPECT_EQ(store->counters().made_bytes, again.allocated().weights);
}

TEST(Threads, AllDrawnAtOnceFromTheNullBackend) {
  const std::shared_ptr<Backend> backend = make_backend("null");
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      Executable e(plan_of(5 + t), fresh_store(backend));
      e.run_all();
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace tenon
