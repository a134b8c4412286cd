// What callers may name tensors, and plans that are too large or too deep.
#include <gtest/gtest.h>

#include <set>

#include "tenon/core/error.h"
#include "tenon/explain/parse_plan.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"
#include "tenon/kernels/view_facts.h"
#include "tenon/plan/one_launch.h"
#include "tenon/plan/plan.h"

namespace tenon {
namespace {

template <class F>
void refused(const std::string& text, ErrorKind kind, const F& make) {
  try {
    make();
    ADD_FAILURE() << "accepted, expected: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), text);
    EXPECT_EQ(e.kind(), kind);
  }
}

void no_plan(const std::string& text, const std::vector<Result>& results, ErrorKind kind = ErrorKind::Usage) {
  refused(text, kind, [&] { make_plan(results); });
}

void no_launch(const std::string& text, const std::vector<Result>& results) {
  refused(text, ErrorKind::Usage, [&] { one_launch("map", results); });
}

TEST(Limits, TensorsThatTheCallerNamesHaveNamesOfTheirOwn) {
  Graph g, other;
  const Expr x = input(g, "x", DType::F32, {2});
  no_plan("[plan] two of its inputs, results and states are named 'y'", {{"y", x + 1.0}, {"y", x + 2.0}});
  no_plan("[plan] two of its inputs, results and states are named 'x'", {{"x", x + 1.0}});
  const Expr narrow = input(g, "x", DType::BF16, {2});
  no_plan("[plan] two of its inputs, results and states are named 'x'", {{"y", x + cast(narrow, DType::F32)}});
  PlanOptions outside;
  outside.outside = true;
  EXPECT_THROW(make_plan(std::array{Result{"y", x + cast(narrow, DType::F32)}}, outside), Error);
  no_plan("[plan] result 'z' is empty", {{"y", x + 1.0}, {"z", Expr()}});
  no_plan("[expressions] are from different graphs", {{"y", x}, {"z", input(other, "x", DType::F32, {2})}});
  EXPECT_THROW(one_launch("map", {store("x", x + 1.0)}), Error);
  EXPECT_THROW(one_launch("map", {store("y", x + 1.0), store("y", x + 2.0)}), Error);
}

TEST(Limits, TensorsThatALaunchWritesHaveNames) {
  Graph g;
  const Expr rows = input(g, "rows", DType::F32, {1, 4}), table = state(g, "table", DType::F32, {8, 4});
  no_launch("[map] needs a result", {});
  no_launch("[map] needs the name of the tensor it writes", {store("", rows)});
  no_launch("[map] result 'y' is empty", {store("y", Expr())});
  no_launch("[map] an update must have its state's name, got 'y'", {store("y", update_rows(table, iota(g, 1), rows))});
}

TEST(Limits, SomeNamesAreForWhatKernelsCompute) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {2}), y = input(g, "%let.0", DType::F32, {2});
  const std::string why = ", but names that begin with '%' are for what kernels compute";
  no_plan("[plan] a tensor is named '%let.0'" + why, {{"y", x + y}});
  no_plan("[plan] a tensor is named '%acc.0'" + why, {{"%acc.0", x + 1.0}});
}

TEST(Limits, NamesMayBeLong) {
  Graph g;
  const Expr x = input(g, std::string(5000, 'x'), DType::F32, {4, 4});
  const Plan p = make_plan(std::array{Result{"y", linear(x, param(g, std::string(70000, 'w'), DType::F32, {4, 4}))}});
  EXPECT_EQ(print_plan(parse_plan(print_plan(p))), print_plan(p));
}

TEST(Limits, TemporariesKeepClearOfTheCallersNames) {
  Graph g;
  const Expr x = input(g, "t0", DType::F32, {4, 4}), w = param(g, "t1", DType::F32, {4, 4});
  const Expr h = linear(linear(linear(x, w), w), w) + x;
  const Plan p = make_plan(std::array{Result{"t1", h}, Result{"t0_", sum(linear(h, w))}});
  std::set<std::string> names;
  for (const Buffer& b : p.buffers) EXPECT_TRUE(names.insert(b.name).second) << b.name;
  EXPECT_GE(names.size(), 5u) << "an input, two results, two temporaries";
  EXPECT_EQ(print_plan(parse_plan(print_plan(p))), print_plan(p));
}

TEST(Limits, MoreBytesThanCanBeCountedAreRefused) {
  Graph g;
  std::vector<Result> results;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "x" + std::to_string(i);
    results.push_back({"y" + name, input(g, name, DType::F64, {int64_t{1} << 46, 1024}) + 1.0});
  }
  no_plan("[plan] its tensors have more than 2^60 bytes in all", results, ErrorKind::Memory);
}

// Maths of any depth is planned: what is too deep for one launch becomes several.
TEST(Limits, DeepMathsIsCutIntoLaunches) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {2});
  Expr y = x;
  for (int i = 0; i < 3000; ++i) y = y * 0.5 + x;
  const Plan p = make_plan(std::array{Result{"y", y}});
  EXPECT_GT(counts_of(p).total, 5);
  EXPECT_LT(counts_of(p).total, 10);
}

// So are chains of views.
TEST(Limits, DeepViewsAreCutIntoLaunches) {
  Graph g;
  Expr y = input(g, "x", DType::F32, {4, 4}), literal = broadcast(constant(g, 2), {4, 4});
  for (int i = 0; i < 20000; ++i) {
    y = flip(y, i % 2);
    literal = flip(literal, i % 2);
  }
  const Plan p = make_plan(std::array{Result{"y", y}, Result{"z", y * reduce_max(y * literal)}});
  EXPECT_GT(counts_of(p).total, 20);
  EXPECT_EQ(print_plan(parse_plan(print_plan(p))), print_plan(p));
}

// Each step of a stencil doubles the paths to its input, of which there are only a few different slices.
TEST(Limits, StencilsOfManySteps) {
  Graph g;
  Expr x = input(g, "x", DType::F32, {40, 40});
  for (int i = 0; i < 20; ++i) {
    const int axis = i % 2;
    const int64_t n = x.shape()[axis];
    x = slice(x, axis, 0, n - 1) * 0.5 + slice(x, axis, 1, n) * 0.25;
  }
  const Plan p = make_plan(std::array{Result{"y", x}});
  ASSERT_EQ(counts_of(p).total, 1);
  const Form& form = *p.phase(Rate::Step)->launches.at(0).form;
  EXPECT_LT(topological(std::array{form.outputs.at(0).value}).size(), 10000u);
}

// Views that share views are examined once.
TEST(Limits, SharedViews) {
  Graph g;
  Expr y = input(g, "x", DType::F32, {0, 4});
  for (int i = 0; i < 50; ++i) y = concat({flip(y, 0), y}, 0);
  EXPECT_TRUE(is_view_chain(y));
  EXPECT_FALSE(is_view_chain(concat({y, tanh(y)}, 0)));
}

}  // namespace
}  // namespace tenon
