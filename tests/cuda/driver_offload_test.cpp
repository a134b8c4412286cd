// Calls to the driver if weights are offloaded to the host: pinned memory, and a second stream recorded with the first.
// Needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "tenon/backend/cuda/driver/driver_device.h"
#include "tenon/core/error.h"
#include "tests/cuda/fake_driver/fake_driver.h"
#include "tests/cuda/nvrtc_environment.h"

namespace tenon::cuda::driver_offload {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;

class DriverOffload : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_NVRTC();
    options_.search = test::nvrtc_settings();
    const std::string others = options_.search.cuda_path;
    options_.search.cuda_path = std::string(FAKE_DRIVER_FOLDER) + (others.empty() ? "" : ":" + others);
    options_.kernel_folder = fs::temp_directory_path() / ("tenon_offload_" + std::to_string(getpid()));
    options_.compile_threads = 1;
    state_ =
        load_library(Library::Driver, options_.search).library->function<FakeDriverState*()>("fake_driver_state")();
    *state_ = {};
    device_ = std::make_unique<DriverDevice>(options_);
  }
  void TearDown() override {
    if (!state_) return;
    device_.reset();
    EXPECT_EQ(state_->streams, 0);
    EXPECT_EQ(state_->events, 0);
    EXPECT_EQ(state_->graphs, 0);
    EXPECT_EQ(state_->graph_execs, 0);
    EXPECT_EQ(state_->pinned, 0U);
    EXPECT_EQ(state_->used, 0U);
    EXPECT_EQ(state_->contexts, 0);
    fs::remove_all(options_.kernel_folder);
  }
  template <class Action>
  static std::string error_of(Action action) {
    try {
      action();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

  DriverOptions options_;
  FakeDriverState* state_ = nullptr;
  std::unique_ptr<DriverDevice> device_;
};

struct Arguments {
  void* to = nullptr;
  int64_t n = 0;
};
KernelSource kernel() {
  return {"store",
          "struct P { float* to; long n; };\nextern \"C\" __global__ void __launch_bounds__(128) "
          "tenon_kernel(const __grid_constant__ P p) { *p.to = p.n; }\n"};
}

TEST_F(DriverOffload, PinnedMemory) {
  {
    const auto memory = device_->allocate_pinned(1000);
    EXPECT_EQ(state_->pinned, 1000U);
    std::memset(memory.get(), 7, 1000);
    const auto there = device_->allocate(1000);
    const auto stream = device_->make_stream();
    device_->fetch(*stream, there.get(), memory.get(), 1000);
    EXPECT_EQ(static_cast<const unsigned char*>(there.get())[999], 7);
    device_->fetch(*stream, nullptr, nullptr, 0);
  }
  EXPECT_EQ(state_->pinned, 0U);
  state_->refuse_pinned = 500;
  EXPECT_THAT(error_of([&] { device_->allocate_pinned(1000); }),
              HasSubstr("cannot allocate 1000 bytes of pinned memory"));
}

// A copy from such memory would go on while the caller already changes it.
TEST_F(DriverOffload, CopiesFromPinnedMemoryAreWaitedFor) {
  const auto stream = device_->make_stream();
  const auto host = device_->allocate_pinned(64), there = device_->allocate(64);
  const int before = state_->waits;
  device_->copy_in(*stream, there.get(), std::vector<std::byte>(64).data(), 64);
  EXPECT_EQ(state_->waits, before);
  device_->copy_in(*stream, there.get(), host.get(), 64);
  EXPECT_EQ(state_->waits, before + 1);
}

TEST_F(DriverOffload, CopiesAreRecordedBesideKernelCalls) {
  const auto function = device_->load(kernel());
  const auto host = device_->allocate_pinned(64);
  const auto there = device_->allocate(64);
  const Arguments arguments;
  const CallShape shape{.threads = 128, .overlaps = true};
  const auto enqueue = [&](Stream& on) { function->enqueue(on, shape, std::as_bytes(std::span(&arguments, 1))); };
  const auto outside = device_->make_stream();
  const auto earlier = outside->mark();
  std::shared_ptr<const Event> inside;
  const auto recording = device_->record([&](Stream& on) {
    enqueue(on);
    EXPECT_TRUE(state_->overlaps);
    Stream& beside = on.beside();
    EXPECT_EQ(&beside, &on.beside());
    beside.wait(*(inside = on.mark()));
    device_->fetch(beside, there.get(), host.get(), 64);
    EXPECT_THAT(error_of([&] { device_->copy_in(beside, there.get(), host.get(), 64); }),
                HasSubstr("while kernel calls are recorded"));
    enqueue(on);
    EXPECT_TRUE(state_->overlaps);
    on.wait(*beside.mark());
    enqueue(on);
    EXPECT_FALSE(state_->overlaps) << "it may read what was copied before its predecessor has ended";
    enqueue(on);
    EXPECT_TRUE(state_->overlaps);
    EXPECT_THAT(error_of([&] { on.wait(*earlier); }), HasSubstr("wait for work that is not recorded"));
    EXPECT_THAT(error_of([&] { outside->wait(*inside); }), HasSubstr("outside a recording for an event inside it"));
  });
  EXPECT_EQ(state_->recorded, 4);
  EXPECT_EQ(state_->recorded_copies, 1);
  EXPECT_EQ(state_->launches, 0);
  recording->run(*outside);
  EXPECT_EQ(state_->graph_launches, 1);
  EXPECT_THAT(error_of([&] { outside->wait(*inside); }), HasSubstr("outside a recording for an event inside it"));
}

TEST_F(DriverOffload, WhatIsNotWaitedForCannotBeRecorded) {
  const auto host = device_->allocate_pinned(64);
  const auto there = device_->allocate(64);
  EXPECT_THAT(error_of([&] {
                device_->record([&](Stream& on) {
                  on.beside().wait(*on.mark());
                  device_->fetch(on.beside(), there.get(), host.get(), 64);
                });
              }),
              HasSubstr("cannot record kernel calls"));
  EXPECT_FALSE(state_->capturing);
}

}  // namespace
}  // namespace tenon::cuda::driver_offload
