// What barriers keep apart and the order that they enforce; and that plans contain no StopGradient nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tenon/core/error.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/explain/plan_diff.h"
#include "tenon/expr/ops.h"
#include "tenon/plan/plan.h"

namespace tenon {
namespace {

std::vector<std::string> written_by(const Plan& plan) {
  std::vector<std::string> out;
  for (const Launch& l : plan.phase(Rate::Step)->launches)
    for (const Output& o : l.outputs) out.push_back(o.buffer);
  return out;
}

TEST(Barrier, KeepsRecomputationsApart) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 8}), w = param(g, "w", DType::F32, {8, 8});
  EXPECT_EQ(linear(silu(x), w), linear(silu(x), w));
  EXPECT_NE(linear(silu(barrier(x, 0)), w), linear(silu(x), w));
  EXPECT_NE(barrier(x, 0), barrier(x, 1));
  const Plan p = make_plan(std::array{Result{"a", linear(x, w)}, Result{"b", linear(barrier(x, 0), w)}});
  EXPECT_EQ(counts_of(p).total, 2) << "merged: " << print_plan(p);
}

// Launches are ordered by stage, including results without other readers, whatever order they were requested in.
TEST(Barrier, OrdersWhatIsComputed) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 8}), w = param(g, "w", DType::F32, {8, 8});
  const auto behind = [&](int stage) { return silu(linear(barrier(x, stage), w)); };
  const Plan p = make_plan(std::array{Result{"third", behind(2)}, Result{"second", behind(1)},
                                      Result{"its_sum", sum(behind(1))}, Result{"first", behind(0)}});
  EXPECT_THAT(written_by(p), testing::ElementsAre("first", "second", "its_sum", "third"));
}

TEST(Barrier, IsNotCrossed) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 8}), w = param(g, "w", DType::F32, {8, 8});
  const auto launches = [](const Expr& y) { return counts_of(make_plan(std::array{Result{"y", y}})).total; };
  EXPECT_EQ(launches(silu(linear(x, w)) * 2.0), 1);
  EXPECT_EQ(launches(silu(barrier(linear(x, w), 0)) * 2.0), 2);
  EXPECT_EQ(launches(gelu(linear(barrier(silu(x), 0), w))), 2);
  EXPECT_EQ(launches(silu(barrier(x, 0))), 1);
}

TEST(Barrier, NeedsAStage) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4});
  Attrs a;
  a.nums = {NAN};
  const Expr y = silu(g.make(node_type<nodes::Barrier>(), std::array{x}, a));
  EXPECT_THROW(make_plan(std::array{Result{"y", y}}), Error);
}

TEST(StopGradient, IsNotInThePlan) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {4, 8}), w = param(g, "w", DType::F32, {8, 8});
  const Expr y = linear(x, w);
  const Plan plain = make_plan(std::array{Result{"y", silu(y) + y}});
  const Plan stopped = make_plan(std::array{Result{"y", silu(stop_gradient(y)) + y}});
  EXPECT_EQ(diff_plans(plain, stopped), "");
}

}  // namespace
}  // namespace tenon
