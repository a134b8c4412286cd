// Weights offloaded to the host's memory on a GPU, if there is one: bit-identical to weights on the device, also for
// consecutive runs without waits, and within the planned memory.
#include "tenon/core/host_tensor.h"
#include "tenon/expr/ops.h"
#include "tenon/runtime/executable.h"
#include "tests/cuda/gpu_test.h"

namespace tenon::gpu_offload {
namespace {

constexpr int kLayers = 24;
constexpr int64_t kWidth = 2048;  // 8 MiB per layer, so that a copy takes longer than a launch
constexpr int64_t kLayer = kWidth * kWidth * 2;

// Every layer has other values, computed on demand.
class Layers : public WeightSource {
 public:
  static std::string name(int layer) { return "w" + std::to_string(layer); }
  HostView find(const std::string& name) const override {
    std::vector<float> values(kWidth * kWidth);
    uint32_t state = 7u + static_cast<uint32_t>(std::stoi(name.substr(1))) * 7919u + seed;
    for (float& v : values) {
      state = state * 1664525u + 1013904223u;
      v = (static_cast<float>(state >> 8) / (1 << 24) - 0.5f) / 13;
    }
    last_ = HostTensor::from(DType::BF16, {kWidth, kWidth}, values);
    return {last_.dtype, last_.shape, last_.data.data()};
  }
  uint32_t seed = 0;

 private:
  mutable HostTensor last_;
};

Plan layers(int64_t rows) {
  Graph g;
  Expr x = input(g, "x", DType::BF16, {rows, kWidth});
  for (int l = 0; l < kLayers; ++l)
    x = cast(linear(x, param(g, Layers::name(l), DType::BF16, {kWidth, kWidth})), DType::BF16);
  return make_plan(std::array{Result{"y", x}});
}

class GpuOffload : public GpuTest {
 protected:
  static std::vector<float> run(Executable& e, float scale, int n) {
    std::vector<float> x(static_cast<size_t>(e.plan().buffers.front().shape.numel()));
    for (size_t i = 0; i < x.size(); ++i) x[i] = scale * (static_cast<float>(i % 101) - 50);
    e.set("x", x);
    e.enqueue(Rate::Step, n);
    return e.get("y");
  }

  std::shared_ptr<Layers> source_ = std::make_shared<Layers>();
};

TEST_F(GpuOffload, BitsAreThoseOfWeightsOnTheDevice) {
  for (const int64_t rows : {16, 512, 4096}) {
    Executable all(layers(rows), std::make_shared<WeightStore>(backend_, source_));
    for (const int left : {1, 8, kLayers - 2}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(left) + " layers less");
      const auto store = std::make_shared<WeightStore>(backend_, source_);
      store->set_offload(Offload{.bytes = all.allocated().total() - left * kLayer});
      const int64_t before = backend_->memory_available();
      Executable e(layers(rows), store);
      EXPECT_LE(before - backend_->memory_available(), e.allocated().total() + (int64_t{64} << 20));  // and kernels
      EXPECT_EQ(store->counters().on_host, std::min(left + 2, kLayers) * kLayer);
      for (const int n : {1, 1, 1, 20})  // launch by launch, recorded, replayed
        for (const float scale : {0.01f, 0.02f}) EXPECT_EQ(run(e, scale, n), run(all, scale, n)) << n;
    }
  }
}

TEST_F(GpuOffload, UpdatesReachWhatWaits) {
  const auto waiting = std::make_shared<WeightStore>(backend_, source_);
  const auto there = std::make_shared<WeightStore>(backend_, source_);
  waiting->set_offload(Offload{.bytes = int64_t{1} << 40, .all = true});
  Executable e(layers(64), waiting), all(layers(64), there);
  EXPECT_EQ(waiting->counters().on_host, kLayers * kLayer);
  const std::vector<float> before = run(e, 0.01f, 3);
  EXPECT_EQ(before, run(all, 0.01f, 3));
  source_->seed = 1000;
  for (const auto& store : {waiting, there}) store->reread({Layers::name(0), Layers::name(13)});
  const std::vector<float> after = run(e, 0.01f, 3);
  EXPECT_NE(after, before);
  EXPECT_EQ(after, run(all, 0.01f, 3));
}

}  // namespace
}  // namespace tenon::gpu_offload
