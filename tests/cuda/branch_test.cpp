// A linear layer and its low-rank branch as one product: results, which ones are combined, and machine code.
#include <gmock/gmock.h>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/backend/cuda/driver/driver_device.h"
#include "tenon/expr/precision.h"
#include "tenon/nn/low_rank.h"
#include "tenon/plan/plan.h"
#include "tests/cuda/emulator.h"
#include "tests/cuda/launch_code.h"

namespace tenon::launches {
namespace {

using testing::HasSubstr;

struct Layer {
  DType type = DType::BF16;
  int64_t rows = 200, columns = 384, k = 320, rank = 24;
  bool column_scale = false;
};

class Branch : public LaunchCodeTest {
 protected:
  // x w^T, scaled by rows and columns if it is e4m3, plus u v^T.
  Expr branched(const Layer& l, const Expr& w, DType beside = DType::BF16) {
    const Expr x = input(g, "x", l.type, {l.rows, l.k}), u = input(g, "u", beside, {l.rows, l.rank}),
               v = weight("v", beside, {l.columns, l.rank});
    std::vector<Expr> factors;
    const auto factor = [&](const char* name, const Shape& shape) {
      factors.push_back(broadcast(input(g, name, DType::F32, shape), {l.rows, l.columns}));
    };
    if (l.type == DType::E4M3) factor("row", {l.rows, 1});
    if (l.column_scale) factor("column", {l.columns});
    return branched_linear(multiplied_in(linear(x, w), l.type), linear(u, v), factors);
  }
  Expr weights_of(const Layer& l) { return weight("w", l.type, {l.columns, l.k}); }

  // With two multiprocessors each block has several tiles.
  void expect_on_hopper(const Layer& l, const Expr& value) {
    expect_on(std::make_shared<cuda::test::Emulator>(cuda::test::EmulatorOptions{.multiprocessors = 2}), l, value);
  }
  void expect_on(const std::shared_ptr<cuda::Device>& device, const Layer& l, const Expr& value) {
    const Launch launched = launch("branched_gemm", {{"y", value}});
    std::string calls;
    const Tensors got = run_on(device, launched, tensors, &calls);
    EXPECT_THAT(calls, HasSubstr("WgmmaTile<"));
    const Rounding rounding{value.dtype(), DType::F32, l.k + l.rank, 8, l.type == DType::E4M3 ? kLostOfE4m3 : 0};
    compare(launched.outputs[0], got.at("y"), Oracle(tensors).eval(value), rounding, calls);
  }
};

TEST_F(Branch, IsAddedToTheProduct) {
  for (const Layer& l : {Layer{}, {DType::F16, 65, 128, 64, 8}, {DType::BF16, 130, 96, 1000, 136}}) {
    tensors.clear();
    expect_on_hopper(l, branched(l, weights_of(l), l.type) * 0.5 + 1.0);
  }
}

TEST_F(Branch, ComesBehindTheScalesOfQuantisedRows) {
  for (const bool column_scale : {false, true}) {
    tensors.clear();
    const Layer l{DType::E4M3, 200, 384, 320, 24, column_scale};
    expect_on_hopper(l, branched(l, weights_of(l)));
  }
}

// Query, key and value, each with its own branch, as a diagonal of blocks.
TEST_F(Branch, IsMadeOfSeveral) {
  const Layer l{DType::BF16, 200, 384, 320, 48};
  const Expr x = input(g, "x", l.type, {l.rows, l.k}), u = input(g, "u", l.type, {l.rows, l.rank});
  std::vector<Expr> parts;
  for (int64_t i = 0; i < 3; ++i)
    parts.push_back(pad(weight(numbered("v", i), l.type, {128, 16}), {0, 0, 16 * i, 16 * (2 - i)}));
  expect_on_hopper(l,
                   branched_linear(multiplied_in(linear(x, weights_of(l)), l.type), linear(u, concat(parts, 0)), {}));
}

// Gate and up are combined in the epilogue, each with its own part of the branch.
TEST_F(Branch, HasLanes) {
  for (const DType t : {DType::BF16, DType::E4M3}) {
    tensors.clear();
    const Layer l{t, 200, 384, 320, 64, t == DType::E4M3};
    const Expr y = branched(l, weights_of(l));
    expect_on_hopper(l, silu(slice(y, -1, 0, 192)) * slice(y, -1, 192, 384));
  }
}

TEST_F(Branch, StandsBesideWeightsInColumns) {
  const Layer l;
  expect_on_hopper(l, branched(l, transpose(weight("w", l.type, {l.k, l.columns}))));
  expect_on_hopper(l, branched(l, transpose(input(g, "changing", l.type, {l.k, l.columns}))));
}

// At Z-Image's width, if there is such a GPU.
TEST_F(Branch, OfAWideLayerOnAGpu) {
  std::shared_ptr<cuda::Device> gpu;
  try {
    gpu = std::make_shared<cuda::DriverDevice>();
  } catch (const Error& e) {
    GTEST_SKIP() << e.what();
  }
  if (gpu->facts().arch != "sm_90a") GTEST_SKIP() << "needs sm_90a";
  for (const Layer& l : {Layer{DType::BF16, 1056, 3840, 3840, 32}, {DType::E4M3, 1056, 3840, 3840, 96, true}}) {
    tensors.clear();
    expect_on(gpu, l, branched(l, weights_of(l)));
  }
  tensors.clear();
  const Layer l{DType::BF16, 1056, 3840, 3840, 48};
  expect_on(gpu, l, branched(l, transpose(weight("w", l.type, {l.k, l.columns}))));
}

// The planner's result for a layer and its branch: skeletons in order.
class BranchPlan : public testing::Test {
 protected:
  static constexpr int64_t kRows = 96, kColumns = 384, kWidth = 320;

  static Plan plan_of(const Expr& root, const std::string& precision = "bf16") {
    const std::shared_ptr<Backend> backend = cuda::make_cuda_backend(std::make_shared<cuda::test::Emulator>());
    PlanOptions o;
    o.target = backend->target();
    o.precision = PrecisionPolicy::parse(precision);
    return make_plan(std::array{Result{"y", root}}, o);
  }
  static std::vector<std::string> skeletons_of(const Expr& root, const std::string& precision = "bf16") {
    const Plan plan = plan_of(root, precision);
    std::vector<std::string> out;
    for (const Launch& l : plan.phase(Rate::Step)->launches) out.push_back(l.skeleton);
    return out;
  }
  Expr with_branch(const Expr& root) {
    return nn::with_side_branches(
        root, {16, std::make_shared<const std::set<std::string>>(std::set<std::string>{"layer.weight"}), 0.5});
  }

  Graph g;
  Expr x = input(g, "x", DType::BF16, {kRows, kWidth}), w = param(g, "layer.weight", DType::BF16, {kColumns, kWidth});
  Expr y = cast(linear(x, w), DType::BF16);
};

TEST_F(BranchPlan, IsOneProductBehindWhatItReads) {
  EXPECT_THAT(skeletons_of(with_branch(y)), testing::ElementsAre("gemm", "branched_gemm"));
}

// A row is read once, for both the branch and the quantised layer.
TEST_F(BranchPlan, RowsAreStoredForBoth) {
  const Expr rows = cast(silu(cast(x, DType::F32)), DType::BF16);
  EXPECT_THAT(skeletons_of(with_branch(cast(linear(rows, w), DType::BF16)), "e4m3, bf16: lora"),
              testing::ElementsAre("rows", "gemm", "branched_gemm"));
}

// For any reader of the sum: it is f32, though it was rounded.
TEST_F(BranchPlan, KeepsItsType) {
  const Expr u = input(g, "u", DType::BF16, {kRows, 16}), v = param(g, "v", DType::BF16, {kColumns, 16}),
             sum = y + linear(u, v);
  EXPECT_THAT(skeletons_of(concat({sum, input(g, "f32", DType::F32, {kRows, 8})}, 1)),
              testing::Contains("branched_gemm"));
  EXPECT_EQ(plan_of(sum).phase(Rate::Step)->launches.back().outputs.front().value.dtype(), DType::F32);
}

// A sum of three, a layer with other readers, and too few rows stay separate.
TEST_F(BranchPlan, StandsAloneElsewhere) {
  const Expr u = input(g, "u", DType::BF16, {kRows, 16}), v = param(g, "v", DType::BF16, {kColumns, 16});
  EXPECT_THAT(skeletons_of(y + linear(u, v)), testing::ElementsAre("branched_gemm"));
  EXPECT_THAT(skeletons_of((y + linear(u, v)) * y), testing::Not(testing::Contains("branched_gemm")));
  const Expr few = slice(u, 0, 0, 8);
  EXPECT_THAT(skeletons_of(linear(slice(x, 0, 0, 8), w) + linear(few, v)),
              testing::Not(testing::Contains("branched_gemm")));
  const Expr wide = input(g, "wide", DType::BF16, {kRows, kWidth}),
             both = param(g, "wide.w", DType::BF16, {kColumns, kWidth});
  EXPECT_THAT(skeletons_of(y + linear(wide, both)), testing::Not(testing::Contains("branched_gemm")));
  const Expr changing = input(g, "changing", DType::BF16, {kColumns, 16});
  EXPECT_THAT(skeletons_of(y + linear(u, changing)), testing::Not(testing::Contains("branched_gemm")));
}

// Layers of a transformer of 3840 columns with 4224 tokens, and a LoRA of rank 32, as machine code.
TEST_F(Branch, IsOneKernelWithoutLocalMemory) {
  SKIP_WITHOUT_NVRTC();
  const auto layer = [&](const std::string& name, DType t, int64_t columns, int64_t k, int64_t rank) {
    const Expr x = leaf(name + ".x", t, {4224, k}), w = leaf(name + ".w", t, {columns, k}, true);
    std::vector<Expr> factors;
    if (t == DType::E4M3)
      for (const Expr& f : {leaf(name + ".row", DType::F32, {4224, 1}), leaf(name + ".column", DType::F32, {columns})})
        factors.push_back(broadcast(f, {4224, columns}));
    const Expr branch =
        linear(leaf(name + ".u", DType::BF16, {4224, rank}), leaf(name + ".v", DType::BF16, {columns, rank}, true));
    return branched_linear(multiplied_in(linear(x, w), t), branch, factors);
  };
  const Expr gate = leaf("gate", DType::BF16, {3840}), residual = leaf("residual", DType::BF16, {4224, 3840});
  for (const DType t : {DType::BF16, DType::E4M3}) {
    const std::string type(name_of(t));
    const Expr both = layer(type + ".w1.w3", t, 20480, 3840, 64);
    const std::vector<Expr> values = {layer(type + ".qkv", t, 11520, 3840, 96),
                                      residual + gate * layer(type + ".w2", t, 3840, 10240, 32),
                                      silu(slice(both, -1, 0, 10240)) * slice(both, -1, 10240, 20480)};
    for (const Expr& value : values) {
      int products = 0;
      expect_code("sm_90a", launch("branched_gemm", {{"y", cast(value, DType::BF16)}}),
                  [&](const cuda::KernelSource& source) {
                    cuda::KernelExpectations e;
                    if (source.name.find("WgmmaTile<") == std::string::npos) return e;
                    ++products;
                    e.contains = {cuda::Opcode::Hgmma};
                    if (t == DType::E4M3) e.contains.push_back(cuda::Opcode::Qgmma);
                    e.wide_loads = e.wide_stores = 0.8;
                    return e;
                  });
      EXPECT_EQ(products, 1);
    }
  }
}

}  // namespace
}  // namespace tenon::launches
