// The backends behind their interface: memory, sizes, names, and what null records.
#include "skeletons/harness.h"
#include "tenon/backend/null/null_backend.h"

namespace tenon::launches {
namespace {

class NoWeights : public WeightSource {
 public:
  HostView find(const std::string& name) const override { throw Error(ErrorKind::Model, name, "no such weight"); }
};

// A device that a machine may have: what a look at it finds is set by the test.
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
  const std::shared_ptr<void> x = cpu->allocate(60), y = cpu->allocate(60),
                              scratch = cpu->allocate(cpu->memory_of(l).scratch);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.get()) % 64, 0u);
  cpu->copy_in(x.get(), tensors.at("x").data.data(), 60);
  const std::unique_ptr<Kernel> kernel = cpu->prepare(
      l, [&](const std::string& name) { return name == "x" ? x.get() : y.get(); }, NoWeights());
  EXPECT_FALSE(kernel->describe().empty());
  kernel->run(scratch.get());
  cpu->synchronize();
  float got[15];
  cpu->copy_out(got, y.get(), 60);
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
  float memory[64];
  try {
    cpu->prepare(
        l, [&](const std::string&) { return memory; }, NoWeights());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Model);
  }
  EXPECT_THROW(cpu->prepare(
                   doubled(), [](const std::string&) { return nullptr; }, NoWeights()),
               Error);
}

TEST_F(Backends, NullRecords) {
  null::clear_record();
  const std::unique_ptr<Backend> backend = make_backend("null");
  const Launch l = doubled();
  EXPECT_EQ(backend->memory_of(l).scratch, 0);
  const std::unique_ptr<Kernel> kernel = backend->prepare(
      l, [](const std::string&) { return nullptr; }, NoWeights());
  kernel->run(nullptr);
  kernel->run(nullptr);
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
