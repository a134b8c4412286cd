// Streams, threads and weight stores on a GPU, if there is one.
#include <thread>

#include "tenon/expr/ops.h"
#include "tenon/models/registry.h"
#include "tenon/models/unet.h"
#include "tenon/pipelines/random_weights.h"
#include "tenon/runtime/executable.h"
#include "tests/cuda/gpu_test.h"

namespace tenon {
namespace {

constexpr int64_t kSide = 1024;

class GpuStreams : public GpuTest {
 protected:
  // x -> f applied to it many times, long enough to detect a reader that does not wait.
  static Plan chain(const std::string& from, const std::string& to, int links, double factor) {
    Graph g;
    const Expr x = input(g, from, DType::F32, {kSide, kSide});
    Expr y = x;
    for (int i = 0; i < links; ++i) y = linear(y, broadcast(constant(g, factor / kSide), {kSide, kSide}));
    PlanOptions options;
    options.outside = true;
    options.hoist = false;
    return make_plan(std::array{Result{to, y}}, options);
  }
  std::shared_ptr<void> filled(float value) {
    const std::vector<float> values(kSide * kSide, value);
    const auto stream = backend_->make_stream();
    auto memory = backend_->allocate(kSide * kSide * 4);
    backend_->copy_in(*stream, memory.get(), values.data(), kSide * kSide * 4);
    stream->synchronize();
    return memory;
  }
  float first(const std::shared_ptr<void>& memory) {
    float out = 0;
    backend_->copy_out(*backend_->make_stream(), &out, memory.get(), sizeof out);
    return out;
  }

  static Plan unet_plan(int64_t side) {
    UNetShape s;
    s.height = s.width = side;
    s.tokens = 5;
    s.timesteps = 3;
    Graph g;
    return make_plan(std::array{Result{"y", unet(g, model_preset("tiny").config.unet, s, nn::kBf16)}});
  }
  static std::vector<float> result(Executable& e, int n = 1) {
    for (const Buffer& b : e.plan().buffers) {
      if (b.role != BufferRole::Input) continue;
      std::vector<float> values(static_cast<size_t>(b.shape.numel()));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = b.dtype == DType::I32 ? static_cast<float>(i % 3) : std::sin(0.7f * static_cast<float>(i));
      e.set(b.name, values);
    }
    e.run_all();
    e.enqueue(Rate::Step, n);
    return e.get("y");
  }
  std::shared_ptr<WeightStore> store() const {
    return std::make_shared<WeightStore>(backend_, random_weights(unet_weights(model_preset("tiny").config.unet), 3));
  }
};

TEST_F(GpuStreams, OneExecutableWaitsForAnother) {
  const auto x = filled(1), h = filled(0), y = filled(0);
  Executable one(chain("x", "h", 12, 2), backend_, HostWeights(), {{"x", x.get()}, {"h", h.get()}});
  Executable two(chain("h", "y", 1, 1), backend_, HostWeights(), {{"h", h.get()}, {"y", y.get()}});
  for (int run = 0; run < 20; ++run) {
    one.start();
    two.wait_for(one);
    two.start();
    two.wait();
    ASSERT_EQ(first(y), 4096.0f) << run;
    const auto zeros = filled(0);
    const auto stream = backend_->make_stream();
    backend_->copy(*stream, h.get(), zeros.get(), kSide * kSide * 4);
    stream->synchronize();
  }
}

TEST_F(GpuStreams, AnExecutableMayChangeStreams) {
  const auto x = filled(1), h = filled(0);
  Executable e(chain("x", "h", 6, 2), backend_, HostWeights(), {{"x", x.get()}, {"h", h.get()}});
  const auto other = backend_->make_stream();
  for (int run = 0; run < 10; ++run) {
    e.start();
    e.start(other);
    e.start();
    e.wait();
    ASSERT_EQ(first(h), 64.0f);
  }
}

TEST_F(GpuStreams, ThreadsShareOneStore) {
  constexpr int kThreads = 4;
  std::vector<std::vector<float>> alone, found(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    Executable e(unet_plan(8 + 4 * t), store());
    alone.push_back(result(e));
  }
  const std::shared_ptr<WeightStore> shared = store(), in_turn = store();
  for (int t = 0; t < kThreads; ++t) Executable(unet_plan(8 + 4 * t), in_turn);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      Executable e(unet_plan(8 + 4 * t), shared);
      for (int run = 0; run < 20; ++run) found[static_cast<size_t>(t)] = result(e, 5);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(found, alone);
  EXPECT_EQ(shared->counters().bytes, in_turn->counters().bytes) << "weights in another layout for another size count";
}

TEST_F(GpuStreams, AnUpdateShowsInWhatIsRecorded) {
  const std::string name = "conv_in.weight";
  const WeightShapes shapes = unet_weights(model_preset("tiny").config.unet);
  const auto other = random_weights(shapes, 4);
  const HostView value = other->find(name);
  const auto shared = store();
  Executable e(unet_plan(8), shared);
  const std::vector<float> before = result(e, 2);
  shared->update(name, value);
  const std::vector<float> after = result(e, 2);
  EXPECT_NE(after, before);
  const auto again = store();
  again->update(name, value);
  Executable fresh(unet_plan(8), again);
  EXPECT_EQ(result(fresh, 2), after);
  const auto first_ones = random_weights(shapes, 3);
  shared->update(name, first_ones->find(name));
  EXPECT_EQ(result(e, 2), before);
}

}  // namespace
}  // namespace tenon
