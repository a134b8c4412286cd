// Users of a value that is stored for others: they leave with it where they are stored anyway.
#include <gtest/gtest.h>

#include "tenon/expr/ops.h"
#include "tenon/kernels/affine.h"
#include "tenon/plan/plan.h"

namespace tenon {
namespace {

class AbsorbedOneByOne : public testing::Test {
 protected:
  Graph g;
  Expr x = input(g, "x", DType::BF16, {64, 128});
  Expr product(const std::string& name, const Expr& e) {
    return cast(linear(e, param(g, name, DType::BF16, {128, 128})), DType::BF16);
  }
  static PlanOptions tensors_only() {
    PlanOptions o;
    o.target.reads = [](const Form& form, size_t hole) { return is_view_chain(form.holes[hole]); };
    return o;
  }
  static std::vector<size_t> sinks(const std::vector<Result>& results, const PlanOptions& o = {}) {
    std::vector<size_t> out;
    const Plan p = make_plan(results, o);
    for (const Launch& l : p.phase(Rate::Step)->launches) out.push_back(l.outputs.size());
    return out;
  }
};

TEST_F(AbsorbedOneByOne, WhatNoKernelComputesInFrontOfItsReader) {
  const Expr h = product("w", x), y = h + product("v", silu(h));
  EXPECT_EQ(sinks({{"y", y}}), (std::vector<size_t>{1, 1}));
  EXPECT_EQ(sinks({{"y", y}}, tensors_only()), (std::vector<size_t>{2, 1}));
  const Expr turned = h + product("u", reshape(cast(tanh(silu(h)), DType::BF16), {64, 128}));
  EXPECT_EQ(sinks({{"y", turned}}, tensors_only()), (std::vector<size_t>{2, 1}));
}

TEST_F(AbsorbedOneByOne, Results) {
  const Expr h = product("w", x);
  EXPECT_EQ(sinks({{"h", h}, {"y", tanh(h)}}), (std::vector<size_t>{2}));
  EXPECT_EQ(sinks({{"h", h}, {"y", tanh(h)}, {"z", silu(h) * x}}), (std::vector<size_t>{3}));
}

TEST_F(AbsorbedOneByOne, NotWhatWaitsForAnotherAnchorOrForWholeRows) {
  const Expr h = product("w", x), k = product("k", tanh(x));
  EXPECT_EQ(sinks({{"h", h}, {"y", h * product("v", k)}}), (std::vector<size_t>{1, 1, 1}));
  const Expr rows = cast(h * rsqrt(mean(h * h) + 1e-5), DType::BF16);
  EXPECT_EQ(sinks({{"y", h + product("v", rows)}}, tensors_only()), (std::vector<size_t>{1, 1, 1}));
}

// A value that its reader computes from it costs nothing there.
TEST_F(AbsorbedOneByOne, NotWhatIsNotStoredOtherwise) {
  const Expr h = product("w", x);
  EXPECT_EQ(sinks({{"y", h + product("v", silu(h))}}), (std::vector<size_t>{1, 1}));
  EXPECT_EQ(sinks({{"h", h}, {"y", product("v", silu(h))}}), (std::vector<size_t>{1, 1}));
}

}  // namespace
}  // namespace tenon
