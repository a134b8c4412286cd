// Products whose operands are stored by columns, as in gradients: nothing is copied, and weights exist once.
#include <gtest/gtest.h>

#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/explain/explanation.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/expr/ops.h"
#include "tenon/runtime/plan_kernels.h"
#include "tests/cuda/emulator.h"

namespace tenon::cuda {
namespace {

constexpr int64_t kTokens = 96, kInputs = 128, kOutputs = 256;

class Columns : public testing::Test {
 protected:
  Graph g;
  std::shared_ptr<Backend> backend = make_cuda_backend(std::make_shared<test::Emulator>());
  Expr x = input(g, "x", DType::BF16, {kTokens, kInputs}), dy = input(g, "dy", DType::BF16, {kTokens, kOutputs});
  Expr w = param(g, "w", DType::BF16, {kOutputs, kInputs});

  Plan plan(const std::vector<Result>& results) const {
    PlanOptions o;
    o.target = backend->target();
    return make_plan(results, o);
  }
  int kernels(const Plan& p) const {
    int all = 0;
    const WeightStore store(backend, std::make_shared<HostWeights>());
    for (const auto& [name, count] : kernels_of(PlanKernels(p, store))) all += count;
    return all;
  }
};

TEST_F(Columns, GradientsOfWeightsAreOneKernel) {
  const Plan p = plan({{"dw", linear(transpose(dy), transpose(x))}});
  EXPECT_EQ(counts_of(p).total, 1);
  EXPECT_EQ(kernels(p), 1);
}

TEST_F(Columns, BothWaysReadTheSameWeights) {
  const Plan p = plan({{"y", cast(linear(x, w), DType::BF16)}, {"dx", cast(linear(dy, transpose(w)), DType::BF16)}});
  EXPECT_EQ(kernels(p), 2);
  EXPECT_EQ(plan_memory(p, backend).weights, kInputs * kOutputs * 2);
}

// As few rows as the core for few rows takes, which would need copies.
TEST_F(Columns, GradientsOfNarrowWeightsToo) {
  const Expr u = input(g, "u", DType::BF16, {kTokens, 16});
  const Plan p = plan({{"dw", linear(transpose(u), transpose(x))}});
  EXPECT_EQ(counts_of(p).total, 1);
  EXPECT_EQ(kernels(p), 1);
}

// Of joined tensors only the part that no box covers is copied.
TEST_F(Columns, PartsThatNoBoxHasAreCopied) {
  const Expr heads = input(g, "heads", DType::BF16, {4, kTokens, 32});
  const Expr merged = reshape(permute(heads, {1, 0, 2}), {kTokens, kInputs});
  const Plan p = plan({{"dw", linear(transpose(concat({x, merged}, -1)), transpose(dy))}});
  ASSERT_EQ(counts_of(p).total, 2);
  EXPECT_EQ(p.phase(Rate::Step)->launches[0].outputs[0].value.shape(), (Shape{kTokens, kInputs}));
  EXPECT_EQ(kernels(p), 2);
}

}  // namespace
}  // namespace tenon::cuda
