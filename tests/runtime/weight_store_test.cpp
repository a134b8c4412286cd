// Weights that executables share: made once, released by their source, replaced in place.
#include "tenon/runtime/weight_store.h"
#include "tenon/backend/kernel.h"
#include "tenon/runtime/plan_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "tenon/core/error.h"
#include "tenon/core/host_tensor.h"
#include "tenon/expr/ops.h"
#include "tenon/models/clip_text.h"
#include "tenon/models/hash_weights.h"
#include "tenon/models/registry.h"
#include "tenon/models/unet.h"
#include "tenon/runtime/executable.h"
#include "tests/runtime/places.h"
#include "tests/runtime/results.h"

namespace tenon {
namespace {
using places::Place;
using places::places;
using places::plan_of;
using places::result;
using testing::HasSubstr;

// Replaceable tensors by name, in bf16 as in a checkpoint. Records who asks for them.
class Tensors : public WeightSource {
 public:
  explicit Tensors(const WeightShapes& shapes, DType dtype = DType::BF16) {
    for (const auto& [name, shape] : shapes) tensors_[name] = drawn(name, dtype, shape, 0);
  }
  HostView find(const std::string& name) const override {
    const auto it = tensors_.find(name);
    TENON_CHECK(Model, it != tensors_.end(), "tensors") << "no tensor '" << name << "'";
    EXPECT_TRUE(!finished.contains(name) || may_ask_again) << name << " was done with";
    found.insert(name);
    return {it->second.dtype, it->second.shape, it->second.data.data()};
  }
  void done(const std::string& name) const override { finished.insert(name); }

  static HostTensor drawn(const std::string& name, DType dtype, const Shape& shape, uint64_t seed) {
    HostTensor t = HostTensor::zeros(DType::BF16, shape);
    random_weight(name, shape, DType::BF16, 0, shape.numel(), t.data.data(), seed);
    return dtype == DType::BF16 ? t : HostTensor::from(dtype, shape, t.values());
  }
  static HostView view(const HostTensor& t) { return {t.dtype, t.shape, t.data.data()}; }
  std::map<std::string, HostTensor>& tensors() { return tensors_; }

  mutable std::set<std::string> found, finished;
  bool may_ask_again = true;

 private:
  std::map<std::string, HostTensor> tensors_;
};

Plan text_plan(int64_t length) {
  Graph g;
  return plan_of(clip_text(g, model_preset("tiny").config.text, 1, length, nn::kF32));
}

Plan unet_plan(int64_t height, int64_t width, nn::Precision p) {
  UNetShape s;
  s.height = height;
  s.width = width;
  s.tokens = 5;
  s.timesteps = 3;
  Graph g;
  return plan_of(unet(g, model_preset("tiny").config.unet, s, p));
}

TEST(WeightStore, TwentyPromptLengthsPackOnce) {
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    const auto source = std::make_shared<Tensors>(clip_text_weights(model_preset("tiny").config.text));
    const auto store = std::make_shared<WeightStore>(place.backend, source);
    const Executable first(text_plan(77), store);
    const WeightStore::Counters before = store->counters();
    EXPECT_EQ(before.made_bytes, first.allocated().weights);
    EXPECT_EQ(before.bytes, first.allocated().weights);
    source->found.clear();
    for (int64_t length = 1; length <= 20; ++length) {
      const Plan plan = text_plan(length);
      EXPECT_EQ(plan_memory(plan, *store).missing, 0) << length;
      Executable e(plan, store);
      if (length % 7 == 0) {
        EXPECT_EQ(result(e), [&] {
          Executable alone(plan, place.backend, *source);
          return result(alone);
        }()) << length;
        source->found.clear();
      }
    }
    EXPECT_EQ(store->counters().made_bytes, before.made_bytes);
    EXPECT_TRUE(source->found.empty());
  }
}

TEST(WeightStore, ThreePictureSizesPackOnce) {
  for (const Place& place : places())
    for (const nn::Precision p : {nn::kBf16, nn::kF32}) {
      if (place.compiles && p.act == DType::F32) continue;
      SCOPED_TRACE(place.name);
      const auto source = std::make_shared<Tensors>(unet_weights(model_preset("tiny").config.unet));
      const auto store = std::make_shared<WeightStore>(place.backend, source);
      std::vector<std::unique_ptr<Executable>> all;
      for (const auto& [height, width] : {std::pair<int64_t, int64_t>{8, 8}, {16, 8}, {12, 12}}) {
        const int64_t before = store->counters().made_bytes;
        all.push_back(std::make_unique<Executable>(unet_plan(height, width, p), store));
        EXPECT_EQ(store->counters().made_bytes - before, all.size() == 1 ? all.back()->allocated().weights : 0);
      }
      EXPECT_EQ(store->counters().bytes, all.front()->allocated().weights);
      Executable alone(unet_plan(16, 8, p), place.backend, *source);
      std::vector<float> before = result(alone);
      EXPECT_EQ(result(*all[1]), before);
      // Filters, and one of three stacked projections: each changes the picture as a fresh load does.
      for (const char* name : {"conv_in.weight", "up_blocks.1.attentions.0.transformer_blocks.0.attn1.to_k.weight"}) {
        HostTensor& t = source->tensors().at(name);
        t = Tensors::drawn(name, DType::BF16, t.shape, 4);
        store->update(name, Tensors::view(t));
        Executable fresh(unet_plan(16, 8, p), place.backend, *source);
        const std::vector<float> after = result(*all[1]);
        EXPECT_EQ(after, result(fresh)) << name;
        EXPECT_NE(after, before) << name;
        before = after;
      }
    }
}

// Every way in which a tensor reaches a kernel, and two consecutive products of tensors alone.
constexpr int64_t kSide = 40;  // beyond a thousand pixels the CPU's filters have another layout

const WeightShapes& network_weights() {
  static const WeightShapes shapes = {{"conv", {24, 24, 3, 3}}, {"bias", {24}},     {"scale", {24}},
                                      {"q", {16, 24}},          {"k", {16, 24}},    {"table", {10, 24}},
                                      {"left", {7, 8}},         {"right", {16, 8}}, {"behind", {16, 16}}};
  return shapes;
}

Plan network_plan(DType t) {
  Graph g;
  const auto weight = [&](const char* name) { return param(g, name, t, network_weights().at(name)); };
  const auto numbers = [&](const char* name) { return param(g, name, DType::F32, network_weights().at(name)); };
  const Expr x = input(g, "x", t, {1, kSide, kSide, 24}), index = input(g, "index", DType::I32, {7});
  const Expr pixels =
      reshape(cast(silu(conv2d(x, weight("conv"), 1, {1, 1, 1, 1}) + numbers("bias")), t), {kSide * kSide, 24});
  const Expr rows = cast(slice(pixels, 0, 0, 7) + gather(weight("table"), index) * numbers("scale"), t);
  const Expr product = cast(linear(weight("left"), weight("right")), t);
  const Expr constant = linear(product, weight("behind"));
  return plan_of(linear(rows, weight("q")) * 1.5 + linear(rows, weight("k")) + constant);
}

HostTensor replacement(const std::string& name, DType dtype = DType::BF16) {
  return Tensors::drawn(name, dtype, network_weights().at(name), 9);
}

// After replacing each tensor in turn, the network's results equal those of a fresh load of the same tensors.
void expect_updates(const Place& place, DType t, DType given, bool from_device) {
  const auto source = std::make_shared<Tensors>(network_weights());
  const auto store = std::make_shared<WeightStore>(place.backend, source);
  Executable e(network_plan(t), store), other(network_plan(t), store);
  std::vector<float> last = result(e);
  EXPECT_EQ(result(e), last);
  const int recorded = place.recordings();
  Tensors now(network_weights());
  for (const auto& [name, shape] : network_weights()) {
    SCOPED_TRACE(name);
    const HostTensor fresh = replacement(name, given);
    if (from_device) {
      const auto stream = place.backend->make_stream();
      const auto memory = place.backend->allocate(static_cast<int64_t>(fresh.data.size()));
      place.backend->copy_in(*stream, memory.get(), fresh.data.data(), static_cast<int64_t>(fresh.data.size()));
      stream->synchronize();
      store->update(std::array{WeightStore::DeviceTensor{name, fresh.dtype, fresh.shape, memory}});
    } else {
      HostTensor gone = fresh;  // the values need not outlive the call
      store->update(name, Tensors::view(gone));
      std::ranges::fill(gone.data, std::byte{0xff});
    }
    now.tensors()[name] = fresh;
    const std::vector<float> y = result(e);
    EXPECT_NE(y, last);
    Executable alone(network_plan(t), place.backend, now);
    EXPECT_EQ(y, result(alone));
    last = y;
  }
  EXPECT_EQ(place.recordings(), recorded);
  EXPECT_EQ(result(other), last);
  Executable later(network_plan(t == DType::F32 ? DType::BF16 : DType::F32), store);  // other layouts of the same
  Executable alone(later.plan(), place.backend, now);
  EXPECT_EQ(result(later), result(alone));
}

TEST(WeightStore, AnUpdateIsAFreshLoad) {
  for (const DType t : {DType::F32, DType::BF16})
    for (const DType given : {DType::BF16, DType::F32})
      for (const bool from_device : {false, true})
        for (const Place& place : places()) {
          SCOPED_TRACE(place.name + " " + std::string(name_of(t)) + " of " + std::string(name_of(given)) +
                       (from_device ? " from the device" : ""));
          expect_updates(place, t, given, from_device);
        }
}

// All tensors at once: equals a fresh load, and nothing is made twice or asked of the source again.
TEST(WeightStore, SeveralAtOnce) {
  for (const Place& place : places()) {
    const auto source = std::make_shared<Tensors>(network_weights());
    const auto store = std::make_shared<WeightStore>(place.backend, source);
    Executable e(network_plan(DType::F32), store);
    const std::vector<float> before = result(e);
    Tensors now(network_weights());
    const auto stream = place.backend->make_stream();
    std::vector<WeightStore::DeviceTensor> all;
    for (const auto& [name, shape] : network_weights()) {
      const HostTensor& t = now.tensors()[name] = replacement(name);
      const auto bytes = static_cast<int64_t>(t.data.size());
      const std::shared_ptr<void> memory = place.backend->allocate(bytes);
      place.backend->copy_in(*stream, memory.get(), t.data.data(), bytes);
      all.push_back({name, t.dtype, t.shape, memory});
    }
    stream->synchronize();
    const int64_t remade = store->counters().remade;
    store->update(all);
    EXPECT_LE(store->counters().remade - remade, store->counters().entries) << place.name;
    EXPECT_NE(result(e), before) << place.name;
    Executable alone(network_plan(DType::F32), place.backend, now);
    EXPECT_EQ(result(e), result(alone)) << place.name;
    source->found.clear();
    store->update(all);
    EXPECT_THAT(source->found, testing::IsEmpty()) << place.name;
  }
}

TEST(WeightStore, AnUpdateThatDoesNotFitIsNamed) {
  for (const Place& place : places()) {
    const auto store = std::make_shared<WeightStore>(place.backend, std::make_shared<Tensors>(network_weights()));
    Executable e(network_plan(DType::F32), store);
    const std::vector<float> before = result(e);
    const auto refused = [&](const std::string& name, const HostTensor& t) -> std::string {
      try {
        store->update(name, Tensors::view(t));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Model);
        return error.what();
      }
      return "";
    };
    EXPECT_THAT(refused("nobody", replacement("q")), HasSubstr("nobody"));
    EXPECT_THAT(refused("q", replacement("table")), HasSubstr("[q] weight has shape [10,24], expected [16,24]"));
    EXPECT_THAT(refused("q", HostTensor::zeros(DType::I32, {16, 24})), HasSubstr("type i32, expected one like bf16"));
    EXPECT_EQ(result(e), before);
    EXPECT_EQ(store->counters().remade, 0);
  }
}

// Bytes that a backend has allocated and that are still held.
class Counting : public Backend {
 public:
  explicit Counting(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}
  std::string_view name() const override { return backend_->name(); }
  std::string describe() const override { return backend_->describe(); }
  int64_t memory_available() const override { return available - *held; }
  std::vector<DType> types() const override { return backend_->types(); }
  Target target() const override { return backend_->target(); }
  std::shared_ptr<void> allocate(int64_t bytes) override {
    *held += bytes;
    most = std::max(most, *held);
    const auto count = held;
    const std::shared_ptr<void> memory = backend_->allocate(bytes);
    return {memory.get(), [memory, count, bytes](void*) { *count -= bytes; }};
  }
  std::unique_ptr<Kernel> make_kernel(const Launch& l) override { return backend_->make_kernel(l); }
  std::unique_ptr<ListKernel> prepare_list(const Launch& l) override { return backend_->prepare_list(l); }
  std::shared_ptr<Stream> make_stream() override { return backend_->make_stream(); }
  bool takes(const Stream& stream) const override { return backend_->takes(stream); }
  void copy(Stream& s, void* dst, const void* src, int64_t bytes) override { backend_->copy(s, dst, src, bytes); }
  void copy_in(Stream& s, void* dst, const void* src, int64_t bytes) override { backend_->copy_in(s, dst, src, bytes); }
  void copy_out(Stream& s, void* dst, const void* src, int64_t bytes) override {
    backend_->copy_out(s, dst, src, bytes);
  }

  std::shared_ptr<int64_t> held = std::make_shared<int64_t>(0);
  int64_t most = 0, available = int64_t{1} << 40;

 private:
  std::shared_ptr<Backend> backend_;
};

TEST(WeightStore, WhatIsAllocatedIsWhatWasPlanned) {
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    const auto backend = std::make_shared<Counting>(place.backend);
    const auto store = std::make_shared<WeightStore>(backend, std::make_shared<Tensors>(network_weights()));
    const Plan plan = network_plan(DType::F32), half = network_plan(DType::BF16);
    const MemoryPlan planned = plan_memory(plan, backend);
    EXPECT_EQ(planned.missing, planned.weights);
    EXPECT_GT(planned.transient, 0);
    EXPECT_EQ(*backend->held, 0);
    {
      Executable first(plan, store);
      EXPECT_EQ(*backend->held, planned.total());
      EXPECT_EQ(backend->most, planned.needed());
      EXPECT_EQ(first.allocated().total(), planned.total());
      const MemoryPlan more = plan_memory(plan, *store);
      EXPECT_EQ(more.weights, planned.weights);
      EXPECT_EQ(more.missing, 0);
      Executable second(plan, store);
      EXPECT_EQ(*backend->held, planned.total() + more.total() - more.weights);
      const int64_t before = *backend->held;
      const MemoryPlan other = plan_memory(half, *store);
      EXPECT_GT(other.missing, 0);
      EXPECT_LT(other.missing, other.weights);  // numbers are f32 in both
      {
        Executable third(half, store);
        EXPECT_EQ(*backend->held, before + other.total() - other.weights + other.missing);
      }
      EXPECT_EQ(*backend->held, before + other.missing);
      store->release_unused();
      EXPECT_EQ(*backend->held, before);
    }
    EXPECT_EQ(*backend->held, planned.weights);  // available to the next executable
    store->release_unused();
    EXPECT_EQ(*backend->held, 0);
    EXPECT_EQ(store->counters().entries, 0);
    backend->available = planned.needed() - 1;
    EXPECT_THROW(Executable(plan, store), Error);
    EXPECT_EQ(*backend->held, 0);
    backend->available = planned.needed();
    Executable again(plan, store);
  }
}

// A quantised layer keeps one byte per element and one number per row, and nothing of the tensor they were made from.
TEST(WeightStore, QuantisedWeightsAreMadeOnce) {
  constexpr int64_t kColumns = 256, kTerms = 512;
  const auto layer = [](int64_t rows, const char* policy) {
    Graph g;
    PlanOptions o;
    o.precision = PrecisionPolicy::parse(policy);
    const Expr x = input(g, "x", DType::BF16, {rows, kTerms}), w = param(g, "w", DType::BF16, {kColumns, kTerms});
    return make_plan(std::array{Result{"y", linear(x, w)}}, o);
  };
  struct Case {
    const char* policy;
    double lost;       // by rounding rows and weights to 4 bits, or weights to 8
    int64_t compiled;  // bytes per element if there is no arithmetic over i8 rows
  };
  for (const Place& place : places())
    for (const auto& [policy, lost, compiled] : {Case{"e4m3 rows", 0.1, 1}, {"i8 weights", 0.01, 2}}) {
      SCOPED_TRACE(place.name + policy);
      const auto source = std::make_shared<Tensors>(WeightShapes{{"w", {kColumns, kTerms}}});
      const auto store = std::make_shared<WeightStore>(place.backend, source);
      Executable first(layer(8, policy), store);
      EXPECT_EQ(source->finished, (std::set<std::string>{"w"}));
      const WeightStore::Counters counters = store->counters();
      EXPECT_EQ(counters.entries, 2);
      EXPECT_EQ(counters.bytes, kColumns * kTerms * (place.compiles ? compiled : 1) + kColumns * 4);
      EXPECT_EQ(first.allocated().weights, counters.bytes);
      Executable longer(layer(24, policy), store);
      EXPECT_EQ(store->counters().made, counters.made);
      // Its result is the layer's, up to rounding, and for another tensor that of a fresh load.
      Executable exact(layer(8, "f32"), place.backend, *source);
      const std::vector<float> got = result(first), want = result(exact);
      double error = 0, size = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
      }
      EXPECT_LT(error, lost * lost * size);
      EXPECT_GT(error, 0);
      HostTensor other = Tensors::drawn("w", DType::BF16, {kColumns, kTerms}, 4);
      store->update("w", Tensors::view(other));
      source->tensors().at("w") = other;
      Executable fresh(layer(8, policy), place.backend, *source);
      EXPECT_EQ(result(first), result(fresh));
      EXPECT_NE(result(first), got);
    }
}

// A linear layer of a linear layer's sum: the product of their weights is made once for all sizes, and again when a
// factor changes.
TEST(WeightStore, ComputedParametersFollowTheirFactors) {
  const WeightShapes shapes{{"inner", {64, 128}}, {"b", {64}}, {"outer", {64, 64}}, {"c", {64}}};
  const auto chain = [](int64_t rows, DType t) {
    Graph g;
    const Expr x = input(g, "x", t, {rows, 128}), h = input(g, "h", t, {rows, 64});
    const Expr sum = linear(x, param(g, "inner", t, {64, 128})) + param(g, "b", DType::F32, {64}) + h;
    const Expr y = linear(cast(sum, t), param(g, "outer", t, {64, 64})) + param(g, "c", DType::F32, {64});
    return make_plan(std::array{Result{"y", y}}, {.target = {.launch_bytes = int64_t{2} << 20}});
  };
  for (const Place& place : places())
    for (const DType t : {DType::F32, DType::BF16}) {
      SCOPED_TRACE(place.name + " " + std::string(name_of(t)));
      ASSERT_EQ(chain(5, t).phase(Rate::Step)->launches.size(), 1u);
      const auto source = std::make_shared<Tensors>(shapes);
      const auto store = std::make_shared<WeightStore>(place.backend, source);
      Executable e(chain(5, t), store);
      EXPECT_EQ(source->finished, (std::set<std::string>{"b", "c", "inner", "outer"}));
      const WeightStore::Counters counters = store->counters();
      EXPECT_EQ(counters.entries, 2);
      Executable longer(chain(9, t), store);
      EXPECT_EQ(store->counters().made, counters.made);
      std::vector<float> last = result(e);
      for (const auto& [name, shape] : shapes) {
        const HostTensor fresh = Tensors::drawn(name, DType::BF16, shape, 9);
        store->update(name, Tensors::view(fresh));
        source->tensors()[name] = fresh;
        Executable alone(chain(5, t), place.backend, *source);
        EXPECT_NE(result(e), last) << name;
        EXPECT_EQ(last = result(e), result(alone)) << name;
      }
    }
}

TEST(WeightStore, ATensorIsDoneWithWhenTheLastHasBeenMadeOfIt) {
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    Graph g;
    const Expr table = param(g, "table", DType::F32, {12, 16}), other = param(g, "other", DType::F32, {12, 16});
    const Expr rows = gather(table, input(g, "index", DType::I32, {5}));  // unchanged
    const Plan plan = plan_of(linear(linear(rows, table), cast(linear(other, other), DType::F32)));
    const auto source = std::make_shared<Tensors>(WeightShapes{{"table", {12, 16}}, {"other", {12, 16}}});
    source->may_ask_again = false;  // neither before nor after
    const auto store = std::make_shared<WeightStore>(place.backend, source);
    Executable e(plan, store);
    EXPECT_EQ(source->found, (std::set<std::string>{"other", "table"}));
    EXPECT_EQ(source->finished, source->found);
    source->may_ask_again = true;
    Executable alone(plan, place.backend, *source);
    EXPECT_EQ(result(e), result(alone));
  }
}

}  // namespace
}  // namespace tenon
