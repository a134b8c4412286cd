// Executables on streams, on a device that does its work only when somebody waits for it.
#include <gtest/gtest.h>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/expr/ops.h"
#include "tenon/runtime/executable.h"
#include "tests/cuda/emulator.h"

namespace tenon {
namespace {

constexpr int64_t kCount = 64;

class LazyEmulator : public cuda::test::Emulator {
 public:
  LazyEmulator() : Emulator({.lazy = true}) {}
  std::unique_ptr<Replay> record(const std::function<void(Stream&)>& runs) override {
    ++recordings;
    return Emulator::record(runs);
  }
  int recordings = 0;
};

class Streams : public testing::Test {
 protected:
  /// result = f(input), both in the caller's memory.
  Plan plan_of(const std::string& from, const std::string& to, const std::function<Expr(const Expr&)>& f) {
    const std::array results{Result{to, f(input(g_, from, DType::F32, {kCount}))}};
    PlanOptions options;
    options.outside = true;
    options.hoist = false;
    return make_plan(results, options);
  }
  std::vector<float> read(void* memory) {
    std::vector<float> out(kCount);
    backend_->copy_out(*reader_, out.data(), memory, kCount * 4);
    return out;
  }
  std::shared_ptr<void> filled(float value) {
    const std::vector<float> values(kCount, value);
    auto memory = backend_->allocate(kCount * 4);
    backend_->copy_in(*reader_, memory.get(), values.data(), kCount * 4);
    reader_->synchronize();
    return memory;
  }

  Graph g_;
  std::shared_ptr<LazyEmulator> device_ = std::make_shared<LazyEmulator>();
  std::shared_ptr<Backend> backend_ = cuda::make_cuda_backend(device_);
  std::shared_ptr<Stream> reader_ = backend_->make_stream();
};

TEST_F(Streams, OneExecutableWaitsForAnother) {
  for (const bool waits : {false, true}) {
    const auto x = filled(3), h = filled(-1), y = filled(-1);
    Executable first(plan_of("x", "h", [](const Expr& e) { return e * 2.0; }), backend_, HostWeights(),
                     {{"x", x.get()}, {"h", h.get()}});
    Executable second(plan_of("h", "y", [](const Expr& e) { return e + 1.0; }), backend_, HostWeights(),
                      {{"h", h.get()}, {"y", y.get()}});
    EXPECT_NE(first.stream(), second.stream());
    first.start();
    if (waits) second.wait_for(first);
    second.start();
    EXPECT_EQ(read(y.get()), std::vector<float>(kCount, -1)) << "nobody has waited yet";
    second.wait();
    EXPECT_EQ(read(y.get()), std::vector<float>(kCount, waits ? 7.0f : 0.0f));
    first.wait();
    EXPECT_EQ(read(h.get()), std::vector<float>(kCount, 6));
  }
}

TEST_F(Streams, AnEventIsAPointOfAStream) {
  const auto x = filled(3), h = filled(-1);
  Executable e(plan_of("x", "h", [](const Expr& v) { return v * 2.0; }), backend_, HostWeights(),
               {{"x", x.get()}, {"h", h.get()}});
  const std::shared_ptr<const Event> before = e.stream()->mark();
  e.start();
  const std::shared_ptr<const Event> after = e.stream()->mark();
  const auto other = backend_->make_stream();
  other->wait(*before);
  other->synchronize();
  EXPECT_EQ(read(h.get()), std::vector<float>(kCount, -1));
  other->wait(*after);
  other->synchronize();
  EXPECT_EQ(read(h.get()), std::vector<float>(kCount, 6));
}

// Values that one run leaves in the arena are there for the next, on any stream.
TEST_F(Streams, AnExecutableMayChangeStreams) {
  const Expr x = input(g_, "x", DType::F32, {kCount}), s = scalar(g_, "s");
  Executable e(make_plan(std::array{Result{"y", x * s}}), backend_, HostWeights());
  const auto elsewhere = backend_->make_stream();
  e.set("x", std::vector<float>(kCount, 3));
  e.set_scalar("s", 2);  // on its own stream, not done yet
  e.start(elsewhere);
  EXPECT_EQ(e.get("y"), std::vector<float>(kCount, 6));
  e.set_scalar("s", 4);  // after the work on the other
  e.start();
  EXPECT_EQ(e.get("y"), std::vector<float>(kCount, 12));
}

TEST_F(Streams, RunsAreEnqueuedWithoutWaiting) {
  const auto x = filled(1);
  Executable e(plan_of("x", "x", [](const Expr& v) { return v * 2.0; }), backend_, HostWeights(), {{"x", x.get()}});
  e.enqueue(Rate::Step, 3);
  EXPECT_EQ(device_->recordings, 1);
  EXPECT_EQ(read(x.get()), std::vector<float>(kCount, 1));
  e.wait();
  EXPECT_EQ(read(x.get()), std::vector<float>(kCount, 8));
  e.enqueue(Rate::Step, 5);
  e.enqueue(Rate::Step, 0);
  EXPECT_EQ(device_->recordings, 1);
  EXPECT_EQ(read(x.get()), std::vector<float>(kCount, 8));
  e.wait();
  EXPECT_EQ(read(x.get()), std::vector<float>(kCount, 256));
}

// Its kernels have already run, so the next run is recorded immediately, not the one after it.
TEST_F(Streams, RecordedAtOnceWhereTheArenaMoved) {
  const auto store = std::make_shared<WeightStore>(backend_, nullptr);
  const auto arena = std::make_shared<Arena>(backend_);
  const auto executable_of = [&](int64_t n) {
    Graph g;
    const Expr x = input(g, "x", DType::F32, {n});
    Executable e(make_plan(std::array{Result{"y", materialize(x * 2.0) + 1.0}}), store, {}, nullptr, nullptr, arena);
    e.set("x", std::vector<float>(static_cast<size_t>(n), 3));
    return e;
  };
  Executable small = executable_of(kCount);
  small.run_all();
  small.run_all();
  EXPECT_EQ(device_->recordings, 1);
  const Executable large = executable_of(100 * kCount);
  small.run_all();
  EXPECT_EQ(device_->recordings, 2);
  EXPECT_EQ(small.get("y"), std::vector<float>(kCount, 7));
}

// Once an executable exists, its weights are ready for every stream.
TEST_F(Streams, WeightsAreDoneWhenTheyAreGiven) {
  const std::vector<float> scale(kCount, 5), other(kCount, 7);
  const auto source = std::make_shared<HostWeights>();
  source->add("scale", {DType::F32, {kCount}, scale.data()});
  const auto store = std::make_shared<WeightStore>(backend_, source);
  const Plan plan = make_plan(std::array{
      Result{"y", input(g_, "x", DType::F32, {kCount}) * exp(log(param(g_, "scale", DType::F32, {kCount})))}});
  ASSERT_TRUE(std::ranges::any_of(plan.buffers, &Buffer::stored));
  for (int i = 0; i < 2; ++i) {
    Executable e(plan, store);
    e.set("x", std::vector<float>(kCount, 2));
    e.start();
    for (const float y : e.get("y")) EXPECT_NEAR(y, 10, 1e-4f);
    e.wait();
    store->update("scale", {DType::F32, {kCount}, other.data()});
    e.start();
    for (const float y : e.get("y")) EXPECT_NEAR(y, 14, 1e-4f);
    store->update("scale", {DType::F32, {kCount}, scale.data()});
  }
}

// Two devices in one process: waiting for one leaves the other's work alone, and a stream of one can wait for a point
// of the other's.
TEST_F(Streams, TwoDevicesGoOnApart) {
  const auto second_device = std::make_shared<LazyEmulator>();
  const std::shared_ptr<Backend> second = cuda::make_cuda_backend(second_device);
  const auto x = filled(1), y = filled(1);
  const auto twice = [](const Expr& v) { return v * 2.0; };
  Executable one(plan_of("x", "x", twice), backend_, HostWeights(), {{"x", x.get()}});
  Executable two(plan_of("y", "y", twice), second, HostWeights(), {{"y", y.get()}});
  one.enqueue(Rate::Step, 3);
  two.enqueue(Rate::Step, 4);
  two.wait();
  EXPECT_EQ(read(y.get()), std::vector<float>(kCount, 16));
  EXPECT_EQ(read(x.get()), std::vector<float>(kCount, 1)) << "nobody has waited for the first device";
  EXPECT_EQ(device_->recordings + second_device->recordings, 2);
  two.stream()->wait(*one.stream()->mark());
  two.enqueue(Rate::Step);
  two.wait();
  EXPECT_EQ(read(x.get()), std::vector<float>(kCount, 8));
  EXPECT_EQ(read(y.get()), std::vector<float>(kCount, 32));
}

TEST(Enqueue, OnTheProcessorEveryRunIsDone) {
  Graph g;
  std::vector<float> x(kCount, 1);
  PlanOptions options;
  options.outside = true;
  const Plan plan = make_plan(std::array{Result{"x", input(g, "x", DType::F32, {kCount}) * 2.0}}, options);
  Executable e(plan, make_backend("cpu", {2}), HostWeights(), {{"x", x.data()}});
  e.enqueue(Rate::Step, 5);
  e.wait();
  EXPECT_EQ(x, std::vector<float>(kCount, 32));
}

}  // namespace
}  // namespace tenon
