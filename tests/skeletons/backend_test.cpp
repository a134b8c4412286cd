// The backends through their interface: memory, sizes, names, and what null records.
#include "tenon/backend/null/null_backend.h"
#include "tests/skeletons/harness.h"

namespace tenon::launches {
namespace {

// A device that may exist; the test sets whether it is available.
Availability pretended;
const RegisterBackend kPretended("pretended", [](const BackendOptions&) { return make_backend("null"); }, {},
                                 {.preference = 9, .look = [] { return pretended; }});

struct Backends : LaunchTest {
  Launch doubled() {
    const Expr x = input(g, "x", DType::F32, {3, 5});
    return launch("map", {{"y", x * 2.0}});
  }
};

TEST_F(Backends, AreRegistered) {
  const std::vector<std::string> names = backend_names();
  EXPECT_NE(std::find(names.begin(), names.end(), "cpu"), names.end());
  EXPECT_NE(std::find(names.begin(), names.end(), "null"), names.end());
}

TEST_F(Backends, AutoIsTheBestThatCanBeUsed) {
  const std::string without = choose_backend().name;  // the CPU's, or a real GPU's
  EXPECT_NE(without, "null");
  EXPECT_EQ(choose_backend().problem.find("Device X"), std::string::npos);
  pretended = {"Device X", "it is out of order"};
  EXPECT_EQ(choose_backend().name, without);
  EXPECT_EQ(choose_backend().problem, "Device X is not used: it is out of order");
  pretended = {"Device X", ""};
  EXPECT_EQ(choose_backend().name, "pretended");
  EXPECT_EQ(choose_backend().device, "Device X");
  EXPECT_EQ(make_backend("auto")->name(), "null");
  pretended = {};
  EXPECT_EQ(choose_backend().name, without);
}

TEST_F(Backends, CpuRunsALaunch) {
  const std::unique_ptr<Backend> cpu = make_backend("cpu", {2});
  EXPECT_NE(cpu->describe().find("2 threads"), std::string::npos);
  EXPECT_GT(cpu->memory_available(), 1 << 20);
  const Launch l = doubled();
  const std::unique_ptr<Kernel> kernel = cpu->make_kernel(l);
  EXPECT_TRUE(kernel->weights().empty());
  const std::shared_ptr<void> x = cpu->allocate(60), y = cpu->allocate(60),
                              scratch = cpu->allocate(kernel->memory().scratch);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.get()) % 64, 0u);
  const std::shared_ptr<Stream> stream = cpu->make_stream();
  cpu->copy_in(*stream, x.get(), tensors.at("x").data.data(), 60);
  kernel->bind([&](const std::string& name) { return name == "x" ? x.get() : y.get(); }, {}, nullptr);
  EXPECT_FALSE(kernel->describe().empty());
  kernel->run(*stream, scratch.get());
  float got[15];
  cpu->copy_out(*stream, got, y.get(), 60);
  const std::vector<double> want = tensors.at("x").values();
  for (size_t i = 0; i < 15; ++i) EXPECT_EQ(static_cast<double>(got[i]), 2 * want[i]);
}

TEST_F(Backends, AllocationIsZeroedAndLarge) {
  const std::unique_ptr<Backend> cpu = make_backend("cpu", {1});
  const int64_t bytes = (5 << 20) + 13;
  const std::shared_ptr<void> block = cpu->allocate(bytes);
  const char* p = static_cast<const char*>(block.get());
  for (int64_t i = 0; i < bytes; i += 509) ASSERT_EQ(p[i], 0);
  EXPECT_THROW(cpu->allocate(int64_t{1} << 60), Error);
}

TEST_F(Backends, MissingBufferAndWeightAreNamed) {
  const std::unique_ptr<Backend> cpu = make_backend("cpu", {1});
  const Launch l = launch("gemm", {{"y", linear(input(g, "x", DType::F32, {3, 5}), weight("w", DType::F32, {4, 5}))}});
  const std::unique_ptr<Kernel> kernel = cpu->make_kernel(l);
  ASSERT_EQ(kernel->weights().size(), 1u);
  EXPECT_EQ(kernel->weights()[0].params, std::vector<std::string>{"w"});
  try {
    Stream stream;
    weights_of(*kernel, stream, {}, [&](int64_t bytes) { return cpu->allocate(bytes); });
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Model);
  }
  const std::unique_ptr<Kernel> doubles = cpu->make_kernel(doubled());
  EXPECT_THROW(doubles->bind([](const std::string&) { return nullptr; }, {}, nullptr), Error);
}

TEST_F(Backends, NullRecords) {
  null::clear_record();
  const std::unique_ptr<Backend> backend = make_backend("null");
  const Launch l = doubled();
  const std::unique_ptr<Kernel> kernel = backend->make_kernel(l);
  EXPECT_EQ(kernel->memory().scratch, 0);
  kernel->bind([](const std::string&) { return nullptr; }, {}, nullptr);
  const std::shared_ptr<Stream> stream = backend->make_stream();
  kernel->run(*stream, nullptr);
  kernel->run(*stream, nullptr);
  ASSERT_EQ(null::record().size(), 2u);
  EXPECT_EQ(null::record()[1], l.name);
}

TEST_F(Backends, UnknownIsADeviceError) {
  try {
    make_backend("abacus");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Device);
  }
}

}  // namespace
}  // namespace tenon::launches
