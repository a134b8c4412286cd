// Several threads with one model: each has its own executables and streams, over one store, one plan and one model that
// was opened once. Shared objects are read by all and made once.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <future>
#include <latch>
#include <thread>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/expr/ops.h"
#include "tenon/models/clip_text.h"
#include "tenon/models/registry.h"
#include "tenon/pipelines/families/stable_diffusion/text_to_image.h"
#include "tenon/pipelines/image_embedder.h"
#include "tenon/pipelines/random_weights.h"
#include "tenon/pipelines/text_generator.h"
#include "tenon/runtime/executable.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon {
namespace {

constexpr int kWorkers = 4, kRounds = 3;

const ClipTextConfig& text_config() { return model_preset("tiny").config.text; }

Plan text_plan(int64_t length) {
  Graph g;
  return make_plan(std::array{Result{"y", clip_text(g, text_config(), 1, length, nn::kF32)}});
}

std::shared_ptr<WeightStore> text_store(const std::shared_ptr<Backend>& backend) {
  return std::make_shared<WeightStore>(backend, random_weights(clip_text_weights(text_config()), 3));
}

void give_tokens(Executable& e, int64_t length, int seed) {
  std::vector<float> tokens(static_cast<size_t>(length));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed)) % 50);
  e.set("tokens", tokens);
}

// Runs `work(t)` on kWorkers threads that start together. Rethrows an exception from one of them.
void together(const std::function<void(int)>& work) {
  spdlog::default_logger();  // its registry is in a library that the sanitizer does not see into
  std::latch begin(kWorkers);
  std::vector<std::future<void>> all;
  for (int t = 0; t < kWorkers; ++t)
    all.push_back(std::async(std::launch::async, [&, t] {
      begin.arrive_and_wait();
      work(t);
    }));
  for (std::future<void>& f : all) f.get();
}

// One plan, whose expressions all executables read, one store, and two streams per thread, between which its runs
// alternate.
TEST(ThreadStreams, OnePlanOneStoreManyStreams) {
  constexpr int64_t kLength = 6;
  const std::shared_ptr<Backend> backend = make_backend("cpu", {2});
  const Plan plan = text_plan(kLength);
  std::vector<std::vector<float>> alone, found(kWorkers);
  for (int t = 0; t < kWorkers; ++t) {
    Executable e(plan, text_store(backend));
    give_tokens(e, kLength, t);
    e.run_all();
    alone.push_back(e.get("y"));
  }
  const std::shared_ptr<WeightStore> store = text_store(backend);
  together([&](int t) {
    const std::shared_ptr<Stream> own = backend->make_stream(), other = backend->make_stream();
    Executable e(plan, store, {}, own);
    for (int round = 0; round < kRounds; ++round) {
      give_tokens(e, kLength, t);
      e.start(other);
      e.start();
      e.enqueue(plan.phases.back().rate, 2);
      e.wait();
      found[static_cast<size_t>(t)] = e.get("y");
    }
  });
  EXPECT_EQ(found, alone);
  Executable again(plan, store);
  EXPECT_EQ(store->counters().made_bytes, again.allocated().weights);
}

// Sizes are prepared and dropped while others run, without affecting them.
TEST(ThreadStreams, SizesComeAndGoWhileOthersRun) {
  const std::shared_ptr<Backend> backend = make_backend("cpu", {2});
  const auto run = [](Executable& e, int64_t length, int seed) {
    give_tokens(e, length, seed);
    e.run_all();
    return e.get("y");
  };
  std::vector<std::vector<float>> alone;
  for (int64_t length = 3; length < 3 + kWorkers; ++length) {
    Executable e(text_plan(length), text_store(backend));
    alone.push_back(run(e, length, 1));
  }
  const std::shared_ptr<WeightStore> store = text_store(backend);
  together([&](int t) {
    for (int round = 0; round < kRounds; ++round) {
      const int64_t length = 3 + (t + round) % kWorkers;
      const Plan plan = text_plan(length);
      EXPECT_GT(plan_memory(plan, *store).weights, 0);
      Executable e(plan, store);
      store->release_unused();
      EXPECT_EQ(run(e, length, 1), alone[static_cast<size_t>(length - 3)]);
    }
  });
}

// An event of one thread's stream may be handed to another thread, whose own stream waits for it.
TEST(ThreadStreams, AnEventIsHandedOver) {
  constexpr int64_t kCount = 1 << 14;
  const std::shared_ptr<Backend> backend = make_backend("cpu", {2});
  const auto plan = [](const char* from, const char* to, double factor) {
    Graph g;
    PlanOptions options;
    options.outside = true;
    return make_plan(std::array{Result{to, input(g, from, DType::F32, {kCount}) * factor}}, options);
  };
  std::vector<float> x(kCount, 1), h(kCount), y(kCount);
  std::promise<std::shared_ptr<const Event>> ready;
  std::thread producer([&] {
    Executable e(plan("x", "h", 2), backend, HostWeights(), {{"x", x.data()}, {"h", h.data()}});
    e.start();
    ready.set_value(e.stream()->mark());
    e.wait();
  });
  Executable e(plan("h", "y", 3), backend, HostWeights(), {{"h", h.data()}, {"y", y.data()}});
  e.stream()->wait(*ready.get_future().get());
  e.run_all();
  EXPECT_EQ(y, std::vector<float>(kCount, 6));
  producer.join();
}

// Two devices in one process, each with its own store, streams and thread.
TEST(ThreadStreams, SeveralDevices) {
  constexpr int64_t kLength = 5;
  const Plan plan = text_plan(kLength);
  std::vector<std::vector<float>> found(kWorkers);
  const std::vector<std::shared_ptr<WeightStore>> stores = {text_store(make_backend("cpu", {1})),
                                                            text_store(make_backend("cpu", {2}))};
  together([&](int t) {
    Executable e(plan, stores[static_cast<size_t>(t % 2)]);
    for (int round = 0; round < kRounds; ++round) {
      give_tokens(e, kLength, 7);
      e.run_all();
      found[static_cast<size_t>(t)] = e.get("y");
    }
  });
  for (const std::vector<float>& one : found) EXPECT_EQ(one, found[0]);
}

// A model that was opened once draws for several threads, each with its own generator.
TEST(ThreadStreams, GeneratorsOverOneModel) {
  const auto model = StableDiffusionModel::open("");
  const auto draw = [&](int t) {
    PipelineOptions options;
    options.threads = 1;
    TextToImage generator(model, options);
    ImageRequest r;
    r.prompt = "a (red:1.2) circle";
    r.width = r.height = 32;
    r.steps = 1;
    r.seed = static_cast<uint64_t>(t);
    return generator.generate(r).images.at(0).pixels;
  };
  std::vector<std::vector<uint8_t>> alone, found(kWorkers);
  for (int t = 0; t < kWorkers; ++t) alone.push_back(draw(t));
  together([&](int t) { found[static_cast<size_t>(t)] = draw(t); });
  EXPECT_EQ(found, alone);
}

// So does a language model, whose generators each make their first plans in two threads.
TEST(ThreadStreams, TextsOverOneModel) {
  const auto model = LanguageModel::open("sums");
  const auto write = [&](int t) {
    TextOptions options;
    options.threads = 1;
    TextRequest r;
    r.prompt = {40 + t, 41, 42};
    r.max_tokens = 3;
    return make_text_generator(model, options)->generate(r).text;
  };
  std::vector<std::string> alone, found(kWorkers);
  for (int t = 0; t < kWorkers; ++t) alone.push_back(write(t));
  EXPECT_NE(alone[0], "");
  together([&](int t) { found[static_cast<size_t>(t)] = write(t); });
  EXPECT_EQ(found, alone);
}

// Stopping one thread's work does not stop another's.
TEST(ThreadStreams, StoppingOneStopsNoOther) {
  constexpr int64_t kLength = 6;
  const std::shared_ptr<Backend> backend = make_backend("cpu", {2});
  const Plan plan = text_plan(kLength);
  const std::shared_ptr<WeightStore> store = text_store(backend);
  std::atomic<int> finished{0}, stopped{0};
  together([&](int t) {
    Executable e(plan, store);
    give_tokens(e, kLength, t);
    const auto asked = [t] { return t == 0; };
    const StopScope scope(asked);
    try {
      for (int round = 0; round < kRounds; ++round) e.run_all();
      ++finished;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Cancelled);
      ++stopped;
    }
  });
  EXPECT_EQ(finished, kWorkers - 1);
  EXPECT_EQ(stopped, 1);
}

}  // namespace
}  // namespace tenon
