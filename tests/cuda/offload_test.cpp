// Weights offloaded to the host's memory, on the emulator: bit-identical to weights on the device, whether the stream
// or the copies beside it are ahead, and within the planned memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/core/error.h"
#include "tenon/core/host_tensor.h"
#include "tenon/core/stop.h"
#include "tenon/expr/ops.h"
#include "tenon/pipelines/kept_networks.h"
#include "tenon/runtime/executable.h"
#include "tenon/runtime/plan_kernels.h"
#include "tests/cuda/counting_emulator.h"

namespace tenon::offload_test {
namespace {

constexpr int kLayers = 7;
constexpr int64_t kWidth = 384, kRows = 8;  // a layer has 288 KiB
constexpr int64_t kLayer = kWidth * kWidth * 2;

// Counts the bytes that it has allocated.
class Device : public cuda::test::CountingEmulator {
 public:
  explicit Device(cuda::test::EmulatorOptions options) : CountingEmulator(std::move(options)) {}
  std::shared_ptr<void> allocate(int64_t bytes) override { return counted(Emulator::allocate(bytes), bytes, held); }
  std::shared_ptr<void> allocate_pinned(int64_t bytes) override {
    return counted(Emulator::allocate_pinned(bytes), bytes, on_host);
  }
  void fetch(Stream& stream, void* dst, const void* host, int64_t bytes) override {
    ++fetched;
    Emulator::fetch(stream, dst, host, bytes);
  }
  std::shared_ptr<int64_t> held = std::make_shared<int64_t>(0), on_host = std::make_shared<int64_t>(0);
  int fetched = 0;

 private:
  static std::shared_ptr<void> counted(const std::shared_ptr<void>& memory, int64_t bytes,
                                       const std::shared_ptr<int64_t>& count) {
    *count += bytes;
    return {memory.get(), [memory, count, bytes](void*) { *count -= bytes; }};
  }
};

// Layers that differ only in their weights, f32 in the file, so that each is converted.
class Layers : public WeightSource {
 public:
  Layers() {
    for (int l = 0; l < kLayers; ++l) set(l, l);
  }
  static std::string name(int layer) { return "w" + std::to_string(layer); }
  static HostTensor drawn(int seed) {
    std::vector<float> values(kWidth * kWidth);
    uint32_t state = 12345 + static_cast<uint32_t>(seed);
    for (float& v : values) {
      state = state * 1664525 + 1013904223;
      v = (static_cast<float>(state >> 8) / (1 << 24) - 0.5f) / 8;
    }
    return HostTensor::from(DType::F32, {kWidth, kWidth}, values);
  }
  void set(int layer, int seed) { tensors_[name(layer)] = drawn(seed); }
  HostView find(const std::string& name) const override {
    const HostTensor& t = tensors_.at(name);
    return {t.dtype, t.shape, t.data.data()};
  }

 private:
  std::map<std::string, HostTensor> tensors_;
};

// `prompt`: the first two layers run once per prompt.
Plan network(int64_t rows = kRows) {
  Graph g;
  Expr x = input(g, "x", DType::BF16, {rows, kWidth}, Rate::Prompt);
  const auto layer = [&](int l) {
    x = cast(linear(x, param(g, Layers::name(l), DType::BF16, {kWidth, kWidth})), DType::BF16);
  };
  for (int l = 0; l < 2; ++l) layer(l);
  x = cast(x + input(g, "step", DType::BF16, {rows, kWidth}), DType::BF16);
  for (int l = 2; l < kLayers; ++l) layer(l);
  return make_plan(std::array{Result{"y", x}});
}

std::vector<float> ramp(int64_t n, float scale) {
  std::vector<float> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) out[i] = scale * (static_cast<float>(i % 37) - 18);
  return out;
}

// Several runs of the last phase: launch by launch, recorded, replayed.
std::vector<std::vector<float>> results(Executable& e) {
  std::vector<std::vector<float>> out;
  const int64_t n = e.plan().buffers.front().shape.numel();
  for (const float scale : {0.01f, 0.02f}) {
    e.set("x", ramp(n, scale));
    e.run(Rate::Prompt);
    for (int step = 0; step < 2; ++step) {
      e.set("step", ramp(n, 0.1f * static_cast<float>(step)));
      e.enqueue(Rate::Step, 1 + step);
      out.push_back(e.get("y"));
    }
  }
  return out;
}

struct Case {
  const char* name;
  cuda::test::EmulatorOptions options;
};
std::vector<Case> cases() {
  return {{"in turn", {}},
          {"copies as late as they can", {.lazy = true}},
          {"copies as early as they can", {.lazy = true, .early_copies = true}}};
}

struct Prepared {
  std::shared_ptr<Device> device;
  std::shared_ptr<Backend> backend;
  std::shared_ptr<Layers> source = std::make_shared<Layers>();
  std::shared_ptr<WeightStore> store;

  explicit Prepared(const cuda::test::EmulatorOptions& options) : device(std::make_shared<Device>(options)) {
    backend = cuda::make_cuda_backend(device);
    store = std::make_shared<WeightStore>(backend, source);
  }
};

TEST(Offload, BitsAreThoseOfWeightsOnTheDevice) {
  const Plan plan = network();
  Prepared resident({});
  Executable all(plan, resident.store);
  const std::vector<std::vector<float>> expected = results(all);
  const int64_t full = all.allocated().total();
  for (const Case& c : cases())
    for (const int left : {2, 3, 5}) {  // layers that must be offloaded to make room for places
      SCOPED_TRACE(std::string(c.name) + ", " + std::to_string(left) + " layers less");
      Prepared p(c.options);
      p.store->set_offload(Offload{.bytes = full - left * kLayer});
      const MemoryPlan planned = plan_memory(plan, *p.store);
      EXPECT_EQ(planned.staging, 2 * kLayer);
      EXPECT_EQ(planned.host, (left + 2) * kLayer);
      EXPECT_EQ(planned.total(), full - left * kLayer);
      Executable e(plan, p.store);
      EXPECT_EQ(*p.device->held, planned.total());
      EXPECT_EQ(*p.device->on_host, planned.host);
      EXPECT_EQ(e.allocated().total(), planned.total());
      EXPECT_EQ(p.store->counters().on_host, planned.host);
      EXPECT_EQ(results(e), expected);
      EXPECT_GT(p.device->recordings, 0);
      EXPECT_GE(p.device->fetched, left + 2);
    }
}

// A phase that begins with a launch whose result is kept with the weights: the first one that runs starts the copies.
TEST(Offload, BehindStoredResults) {
  Graph g;
  const auto weight = [&](int l) { return param(g, Layers::name(l), DType::BF16, {kWidth, kWidth}); };
  const Expr stored = cast(linear(weight(0), weight(1)), DType::BF16);
  Expr x = cast(linear(input(g, "x", DType::BF16, {kRows, kWidth}, Rate::Constant), stored), DType::BF16);
  for (int l = 2; l < kLayers; ++l) x = cast(linear(x, weight(l)), DType::BF16);
  const Plan plan = make_plan(std::array{Result{"y", x}});
  ASSERT_TRUE(plan.stored(plan.phases[0].launches[0]));
  const auto result = [&](Prepared& p) {
    Executable e(plan, p.store);
    e.set("x", ramp(kRows * kWidth, 0.02f));
    e.run_all();
    return e.get("y");
  };
  Prepared resident({});
  const std::vector<float> expected = result(resident);
  for (const Case& c : cases()) {
    Prepared p(c.options);
    p.store->set_offload(Offload{.bytes = int64_t{1} << 40, .all = true});
    EXPECT_EQ(result(p), expected) << c.name;
    EXPECT_GT(p.store->counters().on_host, 0);
  }
}

TEST(Offload, TheLeastIsNamed) {
  const Plan plan = network();
  Prepared p({});
  p.store->set_offload(Offload{.bytes = 0});
  const int64_t least = plan_memory(plan, *p.store).least;
  EXPECT_EQ(least, plan_memory(plan, p.backend).total() - (kLayers - 2) * kLayer);
  p.store->set_offload(Offload{.bytes = least - 1});
  try {
    Executable e(plan, p.store);
    FAIL() << "it does not fit";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Memory);
    EXPECT_THAT(error.what(), testing::HasSubstr("needs " + std::to_string((least + (1 << 20) - 1) >> 20) + " MiB"));
  }
  EXPECT_EQ(*p.device->held, 0);
  EXPECT_EQ(*p.device->on_host, 0);
  p.store->set_offload(Offload{.bytes = least});
  const Executable e(plan, p.store);
  EXPECT_EQ(*p.device->held, least);
  EXPECT_EQ(*p.device->on_host, kLayers * kLayer);
}

// Another size over the same store reads weights where they are; both may run alternately.
TEST(Offload, SizesShareWhatWaits) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Prepared p(c.options), q({});
    p.store->set_offload(Offload{.bytes = plan_memory(network(), p.backend).total() - 3 * kLayer});
    Executable first(network(), p.store);
    const int64_t on_host = *p.device->on_host;
    p.store->set_offload(Offload{.bytes = *p.device->held + 4 * kLayer});
    Executable second(network(2 * kRows), p.store);
    EXPECT_EQ(*p.device->on_host, on_host);
    EXPECT_EQ(plan_memory(network(2 * kRows), *p.store).missing, 0);
    Executable alone(network(), q.store), other(network(2 * kRows), q.store);
    EXPECT_EQ(results(first), results(alone));
    EXPECT_EQ(results(second), results(other));
    EXPECT_EQ(results(first), results(alone));
  }
}

// A LoRA's change reaches offloaded weights: as new values from the host or the device, or through the source.
TEST(Offload, UpdatesReachWhatWaits) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Prepared p(c.options), q({});
    p.store->set_offload(Offload{.bytes = int64_t{1} << 40, .all = true});
    Executable e(network(), p.store), alone(network(), q.store);
    EXPECT_EQ(results(e), results(alone));
    const int recorded = p.device->recordings;
    for (const bool from_device : {false, true}) {
      const HostTensor other = Layers::drawn(from_device ? 70 : 50);
      const HostView view{other.dtype, other.shape, other.data.data()};
      const auto bytes = static_cast<int64_t>(other.data.size());
      for (Prepared* one : {&p, &q}) {
        if (!from_device) {
          one->store->update(Layers::name(3), view);
          continue;
        }
        const auto stream = one->backend->make_stream();
        const auto memory = one->backend->allocate(bytes);
        one->backend->copy_in(*stream, memory.get(), other.data.data(), bytes);
        stream->synchronize();
        one->store->update(std::array{WeightStore::DeviceTensor{Layers::name(3), other.dtype, other.shape, memory}});
      }
      EXPECT_EQ(results(e), results(alone));
    }
    for (Prepared* one : {&p, &q}) {
      one->source->set(5, 90);
      one->store->reread({Layers::name(5), Layers::name(3)});
    }
    const auto changed = results(e);
    EXPECT_EQ(changed, results(alone));
    EXPECT_EQ(p.device->recordings, recorded);
    Prepared fresh({});
    fresh.source->set(5, 90);
    Executable again(network(), fresh.store);
    EXPECT_EQ(changed, results(again));
    EXPECT_EQ(p.store->counters().made, kLayers);
  }
}

TEST(Offload, AnyStreamWillDo) {
  Prepared q({});
  Executable alone(network(), q.store);
  const std::vector<std::vector<float>> expected = results(alone);
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Prepared p(c.options);
    p.store->set_offload(Offload{.bytes = plan_memory(network(), p.backend).total() - 4 * kLayer});
    Executable e(network(), p.store);
    const auto set = [&] {
      e.set("x", ramp(kRows * kWidth, 0.02f));
      e.set("step", ramp(kRows * kWidth, 0.1f));
    };
    const auto other = p.backend->make_stream();
    set();
    e.start(other);
    e.start();
    e.start(other);
    EXPECT_EQ(e.get("y"), expected.back());
  }
}

TEST(Offload, AnInterruptedRunIsFollowedByAWholeOne) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Prepared p(c.options), q({});
    p.store->set_offload(Offload{.bytes = plan_memory(network(), p.backend).total() - 4 * kLayer});
    Executable e(network(), p.store), alone(network(), q.store);
    {
      int asked = 0;
      const StopScope scope([&asked] { return ++asked > kLayers / 2; });
      EXPECT_THROW(e.start(), Error);
    }
    e.time_launches(true);  // waits for every launch
    EXPECT_EQ(results(e), results(alone));
    EXPECT_EQ(e.times().size(), static_cast<size_t>(kLayers));
    e.time_launches(false);
    EXPECT_EQ(results(e), results(alone));
  }
}

// Kept networks share one memory limit, which includes temporaries: weights of the network that runs once are offloaded
// as far as possible, the other gets the rest. If both do not fit they are prepared in turn.
TEST(Offload, NetworksOfAPipelineShareTheMemory) {
  Prepared q({});
  Executable alone(network(), q.store, {}, nullptr, nullptr, std::make_shared<Arena>(q.backend));
  const std::vector<std::vector<float>> expected = results(alone);
  const MemoryPlan memory = alone.allocated();
  const int64_t full = memory.total(), least = full - (kLayers - 2) * kLayer,
                of_both = 2 * least - memory.arena - memory.scratch;
  for (const bool keep : {true, false})
    for (const int64_t room : {of_both + (kLayers - 5) * kLayer, of_both, of_both - 1}) {
      SCOPED_TRACE(std::to_string(room) + (keep ? ", kept" : ", in turn"));
      Prepared p({});
      PipelineOptions options;
      options.keep_networks = keep;
      options.offload = room;
      KeptNetworks kept(
          p.backend, [](const std::string&) { return std::make_unique<Layers>(); }, options);
      EXPECT_EQ(kept.available(), room);
      const auto draw = [&] {
        for (const auto runs : {KeptNetworks::Runs::Once, KeptNetworks::Runs::EveryStep}) {
          const std::string name = runs == KeptNetworks::Runs::Once ? "text" : "main";
          EXPECT_EQ(results(kept.get(
                        name, name, "", [] { return network(); }, runs)),
                    expected);
          EXPECT_LE(*p.device->held, room);
        }
      };
      draw();
      const bool both = keep && room >= of_both;
      EXPECT_EQ(kept.counters().networks, both ? 2 : 1);
      if (both) {
        EXPECT_EQ(*p.device->held, room) << "whole layers of it are taken";
        EXPECT_EQ(*p.device->on_host, 2 * kLayers * kLayer - (room - of_both));
      }
      draw();
      EXPECT_EQ(kept.counters().prepared, both ? 2 : 4);
    }
}

TEST(Offload, TheProcessorHasNothingToOffloadTo) {
  WeightStore store(make_backend("cpu", {1}), nullptr);
  try {
    store.set_offload(Offload{.bytes = 1 << 30});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_STREQ(error.what(), "[offload] weights on cpu are already in host memory");
  }
}

}  // namespace
}  // namespace tenon::offload_test
