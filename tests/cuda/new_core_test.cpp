// Cores that are not in the tree: one host file each (dot_core.cpp, single_core.cpp) and one device header (gemm_dot.h,
// attention_single.h) are enough to choose, name, measure and run one.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tenon/backend/cuda/products/tile_choice.h"
#include "tenon/core/error.h"
#include "tests/cuda/library_launches.h"

namespace tenon::launches {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kDepth = 8 * 127;  // of dot_core.cpp's products

class NewCore : public LaunchTest {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / numbered("tenon_new_core_", getpid());
    std::filesystem::remove_all(root_);
    setenv("TENON_CACHE_DIR", root_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("TENON_CACHE_DIR");
    unsetenv("TENON_CUDA_CORE");
    std::filesystem::remove_all(root_);
  }

  // An emulator whose kernels find the new headers at the place that docs/adding.md gives.
  static std::shared_ptr<cuda::test::Emulator> device_of(const char* arch) {
    cuda::test::EmulatorOptions options{.arch = arch};
    options.includes.push_back(NEW_CORES);
    return std::make_shared<cuda::test::Emulator>(options);
  }
  // Runs the launch as both GPUs and compares; returns what ran on the last.
  std::string expect_on_devices(const Launch& l, const Rounding& rounding) {
    Oracle oracle(tensors);
    std::string calls;
    for (const char* arch : {"sm_89", "sm_90a"}) {
      const Tensors got = run_on(device_of(arch), l, tensors, &calls);
      for (const Output& o : l.outputs) compare(o, got.at(o.buffer), oracle.eval(o.value), rounding, arch);
    }
    return calls;
  }
  // Products in plain order, permuted, and in lanes.
  Launch product(const std::string& id, int64_t k = kDepth, DType t = DType::BF16) {
    const Expr x = input(g, id + ".x", t, {21, k}), w = weight(id + ".w", t, {128, k}),
               r = input(g, id + ".r", t, {21, 128});
    return launch("gemm", {{id, cast(silu(linear(x, w)) + r, t)}});
  }

  std::filesystem::path root_;
};

const cuda::DeviceFacts kHopper = {
    .name = "of new cores", .arch = "sm_90a", .multiprocessors = 132, .shared_bytes = 232448};

cuda::ProductShape shape() { return {.m = 21, .n = 128, .k = kDepth, .key = "a product of a new core"}; }

TEST_F(NewCore, ComputesProducts) {
  setenv("TENON_CUDA_CORE", "dot", 1);
  for (const DType t : {DType::BF16, DType::F16}) {
    const std::string id(name_of(t));
    EXPECT_THAT(expect_on_devices(product(id, kDepth, t), {t, t, kDepth, 4}), HasSubstr("DotTile<64>"));
  }
  const Expr x = input(g, "x", DType::BF16, {2, 3, kDepth}), y = input(g, "y", DType::BF16, {2, 24, kDepth}),
             w = weight("w", DType::BF16, {128, kDepth}), both = linear(input(g, "z", DType::BF16, {5, kDepth}), w);
  const Launch batched = launch("gemm", {{"batched", cast(linear(x, y) * 0.03, DType::BF16)}});
  EXPECT_THAT(expect_on_devices(batched, {DType::BF16, DType::BF16, kDepth, 4}), HasSubstr("DotTile<64>"));
  const Launch lanes =
      launch("gemm", {{"lanes", cast(slice(both, -1, 0, 64) * silu(slice(both, -1, 64, 128)), DType::BF16)}});
  EXPECT_THAT(expect_on_devices(lanes, {DType::BF16, DType::BF16, kDepth, 8}), HasSubstr("DotTile<64>"));
}

TEST_F(NewCore, TakesOnlyWhatItCan) {
  setenv("TENON_CUDA_CORE", "dot", 1);
  EXPECT_THAT(expect_on_devices(product("other", 64), {DType::BF16, DType::BF16, 64, 4}), HasSubstr("MmaTile<"));
  EXPECT_THAT(expect_on_devices(product("f32", kDepth, DType::F32), {DType::F32, DType::F32, kDepth, 4}),
              HasSubstr("SimtTile<"));
}

TEST_F(NewCore, IsAmongTheChoices) {
  const std::vector<cuda::TileChoice> all = cuda::tile_choices(shape(), kHopper);
  const auto has = [&](const std::string& text) {
    return std::ranges::any_of(all, [&](const cuda::TileChoice& c) { return c.text() == text; });
  };
  EXPECT_TRUE(has("dot threads 64") && has("dot threads 32") && has("mma 64x64 warps 2x2 bytes 128 stages 4 splits 1"));
  EXPECT_NE(cuda::choose_tile(shape(), kHopper).core->name(), "dot") << "it says that it takes long";
  setenv("TENON_CUDA_CORE", "dot", 1);
  EXPECT_EQ(cuda::tile_choices(shape(), kHopper).size(), 2u);
  EXPECT_EQ(cuda::choose_tile(shape(), kHopper).text(), "dot threads 64") << "its best estimate";
  setenv("TENON_CUDA_CORE", "dots", 1);
  try {
    cuda::asked_core();
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr(", dot, "));
    EXPECT_THAT(e.what(), HasSubstr(", single, "));
  }
}

// A line in this machine's table is enough for it to be chosen without being asked for.
TEST_F(NewCore, IsTakenWhereItWasMeasured) {
  ASSERT_TRUE(cuda::TileChoice::parse("dot threads 32"));
  EXPECT_FALSE(cuda::TileChoice::parse("dot threads 32 "));
  EXPECT_FALSE(cuda::TileChoice::parse("dot"));
  std::filesystem::create_directories(root_ / "tiles");
  std::ofstream(root_ / "tiles" / "sm_90a-measured.txt") << shape().key << " = dot threads 32  # 1 us\n";
  cuda::DeviceFacts facts = kHopper;
  facts.name = "measured";  // the table of a name is read once per process
  EXPECT_EQ(cuda::choose_tile(shape(), facts).text(), "dot threads 32");
}

TEST_F(NewCore, ComputesAttention) {
  constexpr int64_t kKeys = 53;
  for (const bool causal : {false, true}) {
    const std::string id = causal ? "causal" : "all";
    const Expr q = input(g, id + ".q", DType::BF16, {2, 4, 35, 24}),
               k = input(g, id + ".k", DType::BF16, {2, 2, kKeys, 24}),
               v = input(g, id + ".v", DType::BF16, {2, 2, kKeys, 24});
    const Launch l = launch("attention", {{id, cast(attention(q, k, v, 0.2, causal), DType::BF16)}});
    const Rounding rounding{DType::BF16, DType::BF16, kKeys, 4};
    setenv("TENON_CUDA_CORE", "single", 1);
    EXPECT_THAT(expect_on_devices(l, rounding), HasSubstr("one query a thread"));
    setenv("TENON_CUDA_CORE", "", 1);
    EXPECT_THAT(expect_on_devices(l, rounding), HasSubstr("AttentionWgmmaTile")) << "it is asked last";
  }
}

}  // namespace
}  // namespace tenon::launches
