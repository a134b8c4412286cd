// Users of a value that is stored for others: they leave with it if they are stored anyway.
#include <gtest/gtest.h>

#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"
#include "tenon/kernels/view_facts.h"
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

// Two f32 results for one reader that has everything needed to compute them.
TEST_F(AbsorbedOneByOne, NotWhatItsReaderMakesOfFewerBytes) {
  const auto stored = [](const Expr& y) {
    const Plan p = make_plan(std::array{Result{"y", y}});
    std::vector<DType> out;
    for (const Output& o : p.phase(Rate::Step)->launches[0].outputs) out.push_back(o.value.dtype());
    return out;
  };
  const Expr h = product("w", x), scaled = h * 3.0;
  EXPECT_EQ(stored(scaled + sum(h * x)), (std::vector{DType::BF16}));
  EXPECT_EQ(stored(scaled * sum(scaled * x) + sum(scaled)), (std::vector{DType::BF16}));
  // A reader that waits for another product would recompute it.
  const Expr rows = cast(scaled * rsqrt(mean(scaled * scaled) + 1e-5), DType::BF16);
  EXPECT_EQ(stored(scaled + product("v", rows)), (std::vector{DType::F32}));
}

// The reader has the whole row in registers: a reduction of another tensor that it reads is absorbed, not a launch.
// What stays with the product needs its scale in memory.
TEST_F(AbsorbedOneByOne, ReductionsOfWhatIsLeftToTheReader) {
  const Expr r = input(g, "r", DType::BF16, {64, 128}), m = mean(r * r) + 1e-5,
             w = param(g, "w", DType::BF16, {128, 128});
  const auto norm_gradient = [&](const Expr& h) { return h * 3.0 * rsqrt(m) + sum(h * 3.0 * r) / m * r; };
  EXPECT_EQ(sinks({{"y", cast(norm_gradient(product("w", x)), DType::BF16)}}), (std::vector<size_t>{1, 1}));
  const Expr scaled = cast(linear(x, w) * absmax(x), DType::BF16);
  EXPECT_EQ(sinks({{"y", cast(norm_gradient(scaled), DType::BF16)}}), (std::vector<size_t>{1, 1, 1}));
}

// Attention's result is stored in the layout that the next product reads; other readers look through the view.
TEST_F(AbsorbedOneByOne, HeadsAreStoredAsRows) {
  const Expr q = input(g, "q", DType::BF16, {1, 4, 64, 32}), o = cast(attention(q, q, q, 0.1), DType::BF16);
  const Expr y = product("w", reshape(permute(o, {0, 2, 1, 3}), {1, 64, 128}));
  const Plan p = make_plan(std::array{Result{"y", y}, Result{"rows", sum(o * q)}});
  EXPECT_EQ(p.phase(Rate::Step)->launches[0].outputs[0].value.shape(), (Shape{1, 64, 128}));
  const Plan apart = make_plan(std::array{Result{"y", y}, Result{"o", o}});
  EXPECT_EQ(apart.phase(Rate::Step)->launches[0].outputs[0].value.shape(), o.shape());
}

// A value that its reader computes from it costs nothing there.
TEST_F(AbsorbedOneByOne, NotWhatIsNotStoredOtherwise) {
  const Expr h = product("w", x);
  EXPECT_EQ(sinks({{"y", h + product("v", silu(h))}}), (std::vector<size_t>{1, 1}));
  EXPECT_EQ(sinks({{"h", h}, {"y", product("v", silu(h))}}), (std::vector<size_t>{1, 1}));
}

}  // namespace
}  // namespace tenon
