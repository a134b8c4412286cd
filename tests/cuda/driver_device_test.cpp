// A GPU device's code paths without a GPU: calls to the driver, handling of its failures, and that nothing stays open.
#include "tenon/backend/cuda/driver/driver_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <set>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/optim/lion.h"
#include "tenon/runtime/executable.h"
#include "tests/cuda/fake_driver/fake_driver.h"
#include "tests/cuda/nvrtc_environment.h"

namespace tenon::cuda {
namespace {
namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kIllegalAddress = 700;

class DriverDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.search = test::nvrtc_settings();
    const std::string others = options_.search.cuda_path;
    options_.search.cuda_path = std::string(FAKE_DRIVER_FOLDER) + (others.empty() ? "" : ":" + others);
    options_.kernel_folder = fs::temp_directory_path() / ("tenon_driver_" + std::to_string(getpid()));
    options_.compile_threads = 2;
    const SearchResult fake = load_library(Library::Driver, options_.search);
    ASSERT_TRUE(fake.library) << fake.problem;
    state_ = fake.library->function<FakeDriverState*()>("fake_driver_state")();
    *state_ = {};
  }
  void TearDown() override {
    EXPECT_EQ(state_->allocations, 0);
    EXPECT_EQ(state_->used, 0U);
    EXPECT_EQ(state_->modules, 0);
    EXPECT_EQ(state_->graphs, 0);
    EXPECT_EQ(state_->graph_execs, 0);
    EXPECT_EQ(state_->streams, 0);
    EXPECT_EQ(state_->events, 0);
    EXPECT_EQ(state_->contexts, 0);
    fs::remove_all(options_.kernel_folder);
  }
  // The error of an action, and its kind.
  template <class Action>
  static std::pair<ErrorKind, std::string> error_of(Action action) {
    try {
      action();
    } catch (const Error& e) {
      return {e.kind(), std::string(e.what()) + " | " + e.hint()};
    }
    return {ErrorKind::Cancelled, "no error"};
  }
  auto error_of_opening() {
    return error_of([this] { DriverDevice device(options_); });
  }

  DriverOptions options_;
  FakeDriverState* state_ = nullptr;
};

// Kernels take one argument: this struct, byte for byte.
KernelSource store_kernel(const std::string& name, const std::string& body = "*p.to = p.n;") {
  return {name,
          "struct P { float* to; long n; };\nextern \"C\" __global__ void __launch_bounds__(128) "
          "tenon_kernel(const __grid_constant__ P p) { " +
              body + " }\n"};
}
struct Arguments {
  void* to;
  int64_t n;
};
std::span<const std::byte> bytes(const Arguments& arguments) { return std::as_bytes(std::span(&arguments, 1)); }

TEST_F(DriverDeviceTest, LookingAtAGpuOpensNothing) {
  const Availability good = look_at_gpu(options_.search);
  EXPECT_EQ(good.device, "Fake GPU");
  EXPECT_TRUE(good.problem.empty() || good.problem.find("NVRTC") != std::string::npos) << good.problem;
  state_->major = 8;
  state_->minor = 6;
  EXPECT_THAT(look_at_gpu(options_.search).problem, HasSubstr("compute capability 8.6"));
  state_->major = 9;
  state_->minor = 0;
  SearchSettings driver_only = options_.search;
  driver_only.cuda_path = FAKE_DRIVER_FOLDER;
  driver_only.cuda_home = driver_only.virtual_env = driver_only.conda_prefix = driver_only.path = driver_only.home = "";
  driver_only.own_environment = driver_only.toolkits = "/nowhere";
  driver_only.system_loader = false;
  EXPECT_THAT(look_at_gpu(driver_only).problem, AllOf(HasSubstr("NVRTC"), HasSubstr("install nvidia-cuda-nvrtc")));
  state_->devices = 0;
  EXPECT_EQ(look_at_gpu(options_.search).device, "");
  state_->devices = 1;
  state_->version = 11000;
  EXPECT_EQ(look_at_gpu(options_.search).device, "") << "a driver that is too old is none";
  driver_only.cuda_path.clear();
  EXPECT_EQ(look_at_gpu(driver_only).device, "");
}

TEST_F(DriverDeviceTest, NoDriver) {
  options_.search.cuda_path.clear();
  options_.search.system_loader = false;
  options_.search.toolkits = "/nonexistent";
  const auto [kind, text] = error_of_opening();
  EXPECT_EQ(kind, ErrorKind::Device);
  EXPECT_THAT(text, AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("install nvidia-driver"),
                          HasSubstr("--device cpu needs none")));
}

TEST_F(DriverDeviceTest, ADriverThatIsTooOld) {
  state_->version = 11040;
  const auto [kind, text] = error_of_opening();
  EXPECT_EQ(kind, ErrorKind::Device);
  EXPECT_THAT(text, AllOf(HasSubstr("too old"), HasSubstr("CUDA 11.4"), HasSubstr("12.0")));
}

TEST_F(DriverDeviceTest, ADriverThatDoesNotStart) {
  state_->init_result = 34;
  const auto [kind, text] = error_of_opening();
  EXPECT_EQ(kind, ErrorKind::Device);
  EXPECT_THAT(text, HasSubstr("does not start"));
}

TEST_F(DriverDeviceTest, NoGpu) {
  state_->init_result = kNoDevice;
  EXPECT_THAT(error_of_opening().second, AllOf(HasSubstr("reports no GPU"), HasSubstr("CUDA_VISIBLE_DEVICES")));
  *state_ = {};
  state_->devices = 0;
  EXPECT_THAT(error_of_opening().second, HasSubstr("reports no GPU"));
  *state_ = {};
  options_.ordinal = 3;
  EXPECT_THAT(error_of_opening().second, HasSubstr("no GPU 3; the driver reports 1"));
}

TEST_F(DriverDeviceTest, AnArchitectureWithoutKernels) {
  state_->major = 8;
  state_->minor = 0;
  const auto [kind, text] = error_of_opening();
  EXPECT_EQ(kind, ErrorKind::Device);
  EXPECT_THAT(text, AllOf(HasSubstr("Fake GPU has compute capability 8.0"), HasSubstr("8.9")));
}

TEST_F(DriverDeviceTest, NoCompiler) {
  options_.search.cuda_path = FAKE_DRIVER_FOLDER;
  options_.search.system_loader = false;
  options_.search.toolkits = "/nonexistent";
  options_.search.own_environment = "/nonexistent/cuda-env";
  options_.search.path.clear();
  options_.search.home.clear();
  options_.search.virtual_env.clear();
  options_.search.conda_prefix.clear();
  options_.search.cuda_home.clear();
  const auto [kind, text] = error_of_opening();
  EXPECT_EQ(kind, ErrorKind::Device);
  EXPECT_THAT(text, HasSubstr("pip' install nvidia-cuda-nvrtc"));
  state_->version = 12080;  // a driver of CUDA 12 needs a compiler of CUDA 12
  EXPECT_THAT(error_of_opening().second, HasSubstr("pip' install nvidia-cuda-nvrtc-cu12"));
}

TEST_F(DriverDeviceTest, FactsAndMemory) {
  SKIP_WITHOUT_NVRTC();
  DriverDevice device(options_);
  const auto stream = device.make_stream();
  EXPECT_EQ(device.facts().name, "Fake GPU");
  EXPECT_EQ(device.facts().arch, "sm_90a");
  EXPECT_EQ(device.facts().multiprocessors, 132);
  EXPECT_EQ(device.facts().shared_bytes, 227 * 1024);
  const std::array<int, 4> numbers = {1, 2, 3, 4};
  const auto memory = device.allocate(sizeof numbers);
  EXPECT_EQ(device.memory_available(), (int64_t{1} << 30) - 16);
  std::array<int, 4> back = {9, 9, 9, 9};
  device.copy_out(*stream, back.data(), memory.get(), sizeof back);
  EXPECT_EQ(back, (std::array<int, 4>{}));
  device.copy_in(*stream, memory.get(), numbers.data(), sizeof numbers);
  device.copy_out(*stream, back.data(), memory.get(), sizeof back);
  EXPECT_EQ(back, numbers);
  device.fill_zero(*stream, memory.get(), 8);
  device.copy_out(*stream, back.data(), memory.get(), sizeof back);
  EXPECT_EQ(back, (std::array<int, 4>{0, 0, 3, 4}));
}

TEST_F(DriverDeviceTest, OutOfMemory) {
  SKIP_WITHOUT_NVRTC();
  DriverDevice device(options_);
  const auto some = device.allocate(1000);
  const auto [kind, text] = error_of([&] { device.allocate(int64_t{1} << 30); });
  EXPECT_EQ(kind, ErrorKind::Memory);
  EXPECT_THAT(text, AllOf(HasSubstr("cannot allocate 1073741824 bytes"), HasSubstr("1073740824 bytes are free")));
  state_->fail_fill = 1;
  EXPECT_THROW(device.allocate(1000), Error);
  EXPECT_EQ(state_->allocations, 1);  // a partial failure was rolled back
}

TEST_F(DriverDeviceTest, AKernelCall) {
  SKIP_WITHOUT_NVRTC();
  DriverDevice device(options_);
  const auto stream = device.make_stream();
  const auto function = device.load(store_kernel("store"));
  EXPECT_EQ(function, device.load(store_kernel("the same under another name")));
  EXPECT_NE(function, device.load(store_kernel("another", "*p.to = 2 * p.n;")));
  const Arguments arguments{&device, 42};
  function->enqueue(*stream,
                    {.grid_x = 7, .grid_y = 2, .threads = 128, .shared_bytes = 100000, .cluster = 2, .overlaps = true},
                    bytes(arguments));
  EXPECT_EQ(state_->launches, 1);
  EXPECT_EQ(state_->grid[0] * 100 + state_->grid[1] * 10 + state_->grid[2], 721U);
  EXPECT_EQ(state_->threads, 128U);
  EXPECT_EQ(state_->shared_bytes, 100000U);
  EXPECT_EQ(state_->dynamic_shared_allowed, 100000);
  EXPECT_EQ(state_->cluster, 2U);
  EXPECT_TRUE(state_->overlaps);
  EXPECT_EQ(std::memcmp(state_->first_parameters, &arguments, sizeof arguments), 0);
  EXPECT_GT(function->resources().registers, 0);
  function->enqueue(*stream, {.threads = 128}, bytes(arguments));
  EXPECT_EQ(state_->cluster, 0U);
  EXPECT_FALSE(state_->overlaps);
  const CallShape hasty{.threads = 128, .overlaps = true, .starts_next = true, .reads_early = true};
  for (int i = 0; i < 2; ++i) function->enqueue(*stream, hasty, bytes(arguments));
  EXPECT_FALSE(state_->overlaps) << "reads early behind one that has not waited yet";
  EXPECT_EQ(state_->modules, 1);
}

TEST_F(DriverDeviceTest, AKernelCallOnTheCallersStream) {
  SKIP_WITHOUT_NVRTC();
  DriverDevice device(options_);
  EXPECT_EQ(device.facts().argument_bytes, kMaxArgumentBytes);
  const auto function = device.load(store_kernel("store"));
  const Arguments arguments{&device, 42};
  const auto ours = device.make_stream(), theirs = device.borrow_stream(reinterpret_cast<void*>(uintptr_t{0x55}));
  function->enqueue(*ours, {.threads = 128}, bytes(arguments));
  const uintptr_t own = state_->stream, context = state_->current_context;
  EXPECT_NE(own, 0U);
  state_->current_context = 7;  // the caller's thread is using another GPU
  function->enqueue(*theirs, {.threads = 128}, bytes(arguments));
  EXPECT_EQ(state_->stream, 0x55U);
  EXPECT_EQ(state_->context, context);
  int64_t word = 1;
  device.copy_in(*theirs, device.allocate(8).get(), &word, 8);
  EXPECT_GT(device.memory_available(), 0);
  EXPECT_EQ(state_->current_context, 7U);
  {
    state_->devices = 2;
    options_.ordinal = 1;
    const DriverDevice another(options_);
    EXPECT_EQ(state_->current_context, 7U);
  }
  EXPECT_EQ(state_->current_context, 7U);
  state_->current_context = 0;  // a thread without a context keeps ours
  function->enqueue(*ours, {.threads = 128}, bytes(arguments));
  EXPECT_EQ(state_->stream, own);
  EXPECT_EQ(state_->current_context, context);
}

TEST_F(DriverDeviceTest, ListsOnTheCallersStream) {
  SKIP_WITHOUT_NVRTC();
  const auto device = std::make_shared<DriverDevice>(options_);
  const std::shared_ptr<Backend> backend = make_cuda_backend(device);
  Lion lion(backend, LionTypes::all(DType::F32));
  const auto memory = backend->allocate(3 * 64);
  float* const at = static_cast<float*>(memory.get());
  const LionTensor tensor{.param = at, .exp_avg = at + 16, .grad = at + 32, .count = 16};
  const auto ours = backend->make_stream(), theirs = backend->borrow_stream(reinterpret_cast<void*>(uintptr_t{0x55}));
  lion.step(*ours, std::array{tensor}, {});
  const uintptr_t own = state_->stream;
  lion.step(*theirs, std::array{tensor}, {});
  EXPECT_EQ(state_->stream, 0x55U);
  EXPECT_EQ(lion.find_non_finite(*ours, std::array{tensor}), -1);
  EXPECT_EQ(state_->stream, own);
}

TEST_F(DriverDeviceTest, OneStreamWaitsForAnother) {
  SKIP_WITHOUT_NVRTC();
  DriverDevice device(options_);
  const auto function = device.load(store_kernel("store"));
  const Arguments arguments{&device, 42};
  const auto first = device.make_stream(), second = device.make_stream();
  function->enqueue(*first, {.threads = 128}, bytes(arguments));
  const uintptr_t one = state_->stream;
  function->enqueue(*second, {.threads = 128}, bytes(arguments));
  const uintptr_t other = state_->stream;
  EXPECT_NE(one, other);
  {
    const std::shared_ptr<const Event> written = first->mark();
    EXPECT_EQ(state_->marked, one);
    EXPECT_EQ(state_->events, 1);
    second->wait(*written);
  }
  EXPECT_EQ(state_->waiting, other);
  EXPECT_EQ(state_->events, 0);
  EXPECT_THAT(error_of([&] { second->wait(Event()); }).second, HasSubstr("an event of another backend"));
}

// Two GPUs in one process, each with its own streams and one model: nothing is wrongly shared.
TEST_F(DriverDeviceTest, TwoDevicesWithTwoStreamsEach) {
  SKIP_WITHOUT_NVRTC();
  state_->devices = 2;
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 16});
  const Plan plan = make_plan(std::array{Result{"y", x * param(g, "scale", DType::F32, {16})}});
  const std::vector<float> scale(16, 2.0f);
  const auto source = std::make_shared<HostWeights>();
  source->add("scale", {DType::F32, {16}, scale.data()});
  std::vector<std::shared_ptr<WeightStore>> stores;
  std::vector<std::unique_ptr<Executable>> all;
  std::set<uintptr_t> streams;
  for (const int ordinal : {0, 1}) {
    options_.ordinal = ordinal;
    stores.push_back(
        std::make_shared<WeightStore>(make_cuda_backend(std::make_shared<DriverDevice>(options_)), source));
    for (int i = 0; i < 2; ++i) all.push_back(std::make_unique<Executable>(plan, stores.back()));
    EXPECT_EQ(stores.back()->counters().made, 1);
  }
  EXPECT_EQ(state_->contexts, 2);
  for (int run = 0; run < 3; ++run)
    for (size_t i = 0; i < all.size(); ++i) {
      all[i]->start();
      EXPECT_EQ(state_->context, 16 + i / 2);
      EXPECT_EQ(state_->stream % 0x100, state_->context) << "a stream of the other GPU";
      streams.insert(state_->stream);
    }
  EXPECT_EQ(streams.size(), 4U);
  const auto other = stores[1]->backend()->make_stream();
  EXPECT_THAT(error_of([&] { all[0]->start(other); }).second, HasSubstr("its stream is of another backend"));
}

// By name, as in flags and Python.
TEST_F(DriverDeviceTest, ADeviceIsNamedByItsNumber) {
  EXPECT_THAT(error_of([] { make_backend("cpu:1"); }),
              testing::Pair(ErrorKind::Device, HasSubstr("no device 1: 'cpu' has only one")));
  EXPECT_EQ(make_backend("cpu:0")->name(), "cpu");
  for (const char* wrong : {"cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:99999999999", ":1", "gpu:1"})
    EXPECT_THAT(error_of([&] { make_backend(wrong); }), testing::Pair(ErrorKind::Device, HasSubstr("no backend '")))
        << wrong;
  SKIP_WITHOUT_NVRTC();
  const std::string path = options_.search.cuda_path + ":" + test::find_nvrtc().nvrtc->path().parent_path().string();
  setenv("TENON_CUDA_PATH", path.c_str(), 1);
  state_->devices = 2;
  for (const auto& [name, context] : {std::pair{"cuda", 16U}, {"cuda:0", 16U}, {"cuda:1", 17U}}) {
    const std::shared_ptr<Backend> backend = make_backend(name);
    state_->current_context = 0;
    EXPECT_GT(backend->memory_available(), 0);
    EXPECT_EQ(state_->current_context, context) << name;
  }
  EXPECT_THAT(error_of([] { make_backend("cuda:2"); }), testing::Pair(ErrorKind::Device, HasSubstr("no GPU 2")));
  unsetenv("TENON_CUDA_PATH");
}

TEST_F(DriverDeviceTest, CallsThatCannotBe) {
  SKIP_WITHOUT_NVRTC();
  DriverDevice device(options_);
  const auto stream = device.make_stream();
  const auto function = device.load(store_kernel("rows: silly"));
  const Arguments arguments{};
  const auto enqueue = [&](const CallShape& shape, size_t size = sizeof arguments) {
    return error_of([&] { function->enqueue(*stream, shape, bytes(arguments).first(size)); }).second;
  };
  EXPECT_THAT(enqueue({.threads = 128}, 8), AllOf(HasSubstr("rows: silly"), HasSubstr("takes 16 bytes")));
  EXPECT_THAT(enqueue({.threads = 256}), HasSubstr("at most 128 threads"));
  EXPECT_THAT(enqueue({.threads = 128, .shared_bytes = 300000}), HasSubstr("300000 bytes of shared memory"));
  EXPECT_EQ(state_->launches, 0);
}

TEST_F(DriverDeviceTest, AKernelThatDoesNotCompile) {
  SKIP_WITHOUT_NVRTC();
  DriverDevice device(options_);
  const auto function = device.load(store_kernel("rows: broken", "no_such_thing();"));
  for (int i = 0; i < 2; ++i) {
    const auto [kind, text] = error_of([&] { function->resources(); });
    EXPECT_EQ(kind, ErrorKind::Device);
    EXPECT_THAT(text, AllOf(HasSubstr("rows: broken"), HasSubstr("no_such_thing")));
  }
}

TEST_F(DriverDeviceTest, FailuresOfTheDriverNameTheKernel) {
  SKIP_WITHOUT_NVRTC();
  DriverDevice device(options_);
  const auto stream = device.make_stream();
  const auto function = device.load(store_kernel("rows: silly"));
  const Arguments arguments{};
  state_->fail_load = 209;
  EXPECT_THAT(error_of([&] { function->enqueue(*stream, {.threads = 128}, bytes(arguments)); }).second,
              HasSubstr("cannot load kernel 'rows: silly'"));
  state_->fail_launch = 701;
  EXPECT_THAT(error_of([&] { function->enqueue(*stream, {.threads = 128}, bytes(arguments)); }).second,
              HasSubstr("cannot start kernel 'rows: silly'"));
  function->enqueue(*stream, {.threads = 128}, bytes(arguments));
  stream->synchronize();
}

TEST_F(DriverDeviceTest, AFaultNamesTheLastCallsAndStays) {
  SKIP_WITHOUT_NVRTC();
  DriverDevice device(options_);
  const auto stream = device.make_stream();
  const auto memory = device.allocate(100);
  const auto function = device.load(store_kernel("rows: silly"));
  const Arguments arguments{};
  function->enqueue(*stream, {.threads = 128}, bytes(arguments));
  state_->fault_at_wait = kIllegalAddress;
  const auto [kind, text] = error_of([&] { stream->synchronize(); });
  EXPECT_EQ(kind, ErrorKind::Device);
  EXPECT_THAT(text, AllOf(HasSubstr("ILLEGAL_ADDRESS"), HasSubstr("'rows: silly'"), HasSubstr("CUDA_LAUNCH_BLOCKING")));
  EXPECT_THAT(error_of([&] { device.allocate(100); }).second,
              AllOf(HasSubstr("unusable after an earlier fault"), HasSubstr("'rows: silly'")));
}

TEST_F(DriverDeviceTest, Recordings) {
  SKIP_WITHOUT_NVRTC();
  std::unique_ptr<Replay> recording;
  std::shared_ptr<Stream> stream;
  {
    DriverDevice device(options_);
    const auto function = device.load(store_kernel("store"));
    const Arguments arguments{};
    stream = device.borrow_stream(reinterpret_cast<void*>(uintptr_t{0x55}));  // it need not support recording
    recording = device.record([&](Stream& on) {
      for (int i = 0; i < 3; ++i) function->enqueue(on, {.threads = 128}, bytes(arguments));
      int word = 0;
      EXPECT_THAT(error_of([&] { device.copy_in(on, &word, &word, 4); }).second,
                  HasSubstr("while kernel calls are recorded"));
      EXPECT_THAT(error_of([&] { on.wait(*stream->mark()); }).second, HasSubstr("while kernel calls are recorded"));
      function->enqueue(*stream, {.threads = 128}, bytes(arguments));  // other calls continue
    });
    EXPECT_EQ(state_->recorded, 3);
    EXPECT_EQ(state_->launches, 1);
    recording->run(*stream);
    EXPECT_EQ(state_->graphs, 0);
  }
  recording->run(*stream);  // outlives the device
  EXPECT_EQ(state_->graph_launches, 2);
}

TEST_F(DriverDeviceTest, ARecordingThatFails) {
  SKIP_WITHOUT_NVRTC();
  DriverDevice device(options_);
  const auto function = device.load(store_kernel("store"));
  const Arguments arguments{};
  const auto enqueue = [&](Stream& on) { function->enqueue(on, {.threads = 128}, bytes(arguments)); };
  state_->fail_launch = 701;
  EXPECT_THROW(device.record(enqueue), Error);
  EXPECT_FALSE(state_->capturing);
  state_->fail_instantiate = 1;
  EXPECT_THROW(device.record(enqueue), Error);
  EXPECT_FALSE(state_->capturing);
  device.record(enqueue)->run(*device.make_stream());
}

TEST_F(DriverDeviceTest, TensorMaps) {
  SKIP_WITHOUT_NVRTC();
  DriverDevice device(options_);
  TensorBox box;
  box.address = &box;
  box.rank = 3;
  for (int i = 0; i < 3; ++i) {
    box.extent[i] = 100;
    box.stride_bytes[i] = 2 << (8 * i);
    box.box[i] = 64 >> i;
  }
  box.swizzle_bytes = 128;
  device.encode(box);
  EXPECT_EQ(state_->map_type, 1);
  EXPECT_EQ(state_->map_rank, 3U);
  EXPECT_EQ(state_->map_swizzle, 3);
  EXPECT_EQ(state_->map_strides[0], 512U);
  EXPECT_EQ(state_->map_strides[1], 131072U);
  EXPECT_EQ(state_->map_box[2], 16U);
}

TEST_F(DriverDeviceTest, TheSecondTimeNothingIsCompiled) {
  SKIP_WITHOUT_NVRTC();
  for (int round = 0; round < 2; ++round) {
    DriverDevice device(options_);
    for (int i = 0; i < 3; ++i) device.load(store_kernel("store", "*p.to = " + std::to_string(i) + ";"))->resources();
    EXPECT_EQ(device.compiler().compiled(), round == 0 ? 3 : 0);
    EXPECT_EQ(device.compiler().found(), round == 0 ? 0 : 3);
  }
}

// Work that nobody waits for is abandoned.
TEST_F(DriverDeviceTest, ADeviceMayGoBeforeItsKernelsAreCompiled) {
  SKIP_WITHOUT_NVRTC();
  std::vector<std::shared_ptr<Function>> functions;
  {
    DriverDevice device(options_);
    for (int i = 0; i < 40; ++i)
      functions.push_back(device.load(store_kernel("store", "*p.to = " + std::to_string(i) + ";")));
  }
  EXPECT_THAT(error_of([&] { functions.back()->resources(); }).second, HasSubstr("its device was destroyed"));
}

}  // namespace
}  // namespace tenon::cuda
