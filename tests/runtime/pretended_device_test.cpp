// Executables on a device that records and offloads, which the CPU pretends to be: what is recorded when, and where
// weights and copies are.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "tenon/backend/kernel.h"
#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/expr/ops.h"
#include "tenon/runtime/executable.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon::pretended_test {
namespace {

// Copies beside it are done when somebody waits for them.
class LateStream : public Stream {
 public:
  struct Side : Stream {
    struct Mark : Event {
      Side* side = nullptr;
    };
    void synchronize() override {
      for (const auto& copy : std::exchange(waiting, {})) copy();
    }
    std::shared_ptr<const Event> mark() override {
      const auto out = std::make_shared<Mark>();
      out->side = this;
      return out;
    }
    std::vector<std::function<void()>> waiting;
  };
  void wait(const Event& event) override {
    if (const auto* const mark = dynamic_cast<const Side::Mark*>(&event)) mark->side->synchronize();
  }
  Side& beside() override { return side_; }

 private:
  Side side_;
};

struct NoReplay : Replay {
  void run(Stream&) override {}
};

class Pretended : public Backend {
 public:
  std::string_view name() const override { return "pretended"; }
  std::string describe() const override { return "pretended"; }
  int64_t memory_available() const override { return int64_t{1} << 40; }
  std::vector<DType> types() const override { return cpu_->types(); }
  Target target() const override { return cpu_->target(); }
  std::shared_ptr<void> allocate(int64_t bytes) override { return cpu_->allocate(bytes); }
  bool offloads() const override { return true; }
  void fetch(Stream& stream, void* dst, const void* host, int64_t bytes) override {
    ++fetched;
    dynamic_cast<LateStream::Side&>(stream).waiting.emplace_back([=] { std::memcpy(dst, host, size_t(bytes)); });
  }
  std::unique_ptr<Kernel> make_kernel(const Launch& l) override { return cpu_->make_kernel(l); }
  std::unique_ptr<ListKernel> prepare_list(const Launch& l) override { return cpu_->prepare_list(l); }
  bool records() const override { return true; }
  std::unique_ptr<Replay> record(const std::function<void(Stream&)>&) override {
    ++recordings;
    if (std::exchange(fail, false)) throw Error(ErrorKind::Cancelled, "record", "interrupted");
    return std::make_unique<NoReplay>();
  }
  std::shared_ptr<Stream> make_stream() override { return std::make_shared<LateStream>(); }
  bool takes(const Stream&) const override { return true; }
  void copy(Stream& s, void* dst, const void* src, int64_t bytes) override { cpu_->copy(s, dst, src, bytes); }
  void copy_in(Stream& s, void* dst, const void* src, int64_t bytes) override { cpu_->copy_in(s, dst, src, bytes); }
  void copy_out(Stream& s, void* dst, const void* src, int64_t bytes) override { cpu_->copy_out(s, dst, src, bytes); }

  int recordings = 0, fetched = 0;
  bool fail = false;  ///< the next recording

 private:
  std::shared_ptr<Backend> cpu_ = make_backend("cpu", {1});
};

constexpr int64_t kSide = 512;
constexpr int kLayers = 6;

class PretendedDevice : public testing::Test {
 protected:
  PretendedDevice() {
    Expr x = input(graph_, "x", DType::F32, {8, kSide});
    auto source = std::make_shared<HostWeights>();
    for (int l = 0; l < kLayers; ++l) {
      const std::string name = "w" + std::to_string(l);
      x = silu(linear(x, param(graph_, name, DType::F32, {kSide, kSide})));
      source->add(name, {DType::F32, {kSide, kSide}, values_.data()});
    }
    plan_ = make_plan(std::array{Result{"y", x}});
    store_ = std::make_shared<WeightStore>(device_, source);
  }
  static void set(Executable& e) { e.set("x", std::vector<float>(8 * kSide, 0.5f)); }
  // Interrupts `run` before its third launch.
  static void interrupt(const std::function<void()>& run) {
    int asked = 0;
    const StopScope stop([&] { return ++asked > 2; });
    EXPECT_THROW(run(), Error);
  }
  static size_t copies_on_the_way(const Executable& e) {
    return dynamic_cast<LateStream&>(*e.stream()).beside().waiting.size();
  }

  std::shared_ptr<Pretended> device_ = std::make_shared<Pretended>();
  std::vector<float> values_ = std::vector<float>(kSide * kSide, 0.004f);
  Graph graph_;
  Plan plan_;
  std::shared_ptr<WeightStore> store_;
};

TEST_F(PretendedDevice, APhaseIsRecordedOnceAllItsLaunchesHaveRun) {
  Executable e(plan_, store_);
  interrupt([&] { e.run(); });
  e.run();
  EXPECT_EQ(device_->recordings, 0) << "most launches had not run";
  e.run();
  e.run();
  EXPECT_EQ(device_->recordings, 1);
}

TEST_F(PretendedDevice, AFailedRecordingIsMadeAgain) {
  Executable e(plan_, store_);
  e.run();
  device_->fail = true;
  EXPECT_THROW(e.run(), Error);
  e.run();
  e.run();
  EXPECT_EQ(device_->recordings, 2);
}

TEST_F(PretendedDevice, WithoutALimitWhatIsOnTheHostIsStillCopied) {
  store_->set_offload(Offload{.bytes = int64_t{1} << 40, .all = true});
  std::vector<float> expected;
  {
    Executable e(plan_, store_);
    set(e);
    e.run();
    expected = e.get("y");
    EXPECT_EQ(device_->fetched, kLayers);
  }
  store_->set_offload(std::nullopt);
  const MemoryPlan planned = plan_memory(plan_, *store_);
  EXPECT_EQ(planned.weights, 0);
  EXPECT_EQ(planned.staging, int64_t{2} * kSide * kSide * 4);
  Executable e(plan_, store_);
  EXPECT_EQ(e.allocated().staging, planned.staging);
  set(e);
  e.run();
  EXPECT_EQ(device_->fetched, 2 * kLayers);
  EXPECT_EQ(e.get("y"), expected);
}

// A later run on another stream, or a replay, would meet them.
TEST_F(PretendedDevice, AnInterruptedRunLeavesNoCopiesOnTheWay) {
  store_->set_offload(Offload{.bytes = int64_t{1} << 40, .all = true});
  Executable e(plan_, store_);
  set(e);
  interrupt([&] { e.start(); });
  EXPECT_EQ(copies_on_the_way(e), 0U);
  interrupt([&] { e.run(); });
  EXPECT_EQ(copies_on_the_way(e), 0U);
  values_.front() = NAN;
  store_->reread({"w1"});
  e.check_finite(true);
  EXPECT_THROW(e.run(), Error);
  EXPECT_EQ(copies_on_the_way(e), 0U);
}

}  // namespace
}  // namespace tenon::pretended_test
