// What a view claims about consecutive elements: kernels load whole runs relying on it.
#include <gtest/gtest.h>

#include "tenon/expr/walk.h"
#include "tests/expr/samples.h"

namespace tenon {
namespace {

struct Source {
  int operand = 0;
  Coord c{};
  bool operator==(const Source& o) const = default;
};

// The table that a gather looks up.
constexpr auto odd = [](int, const Coord& at) { return at[0] % 2; };

// Element k of a walk's result.
Source element(int operand, const Walk& walk, int64_t k) {
  Source s{operand, {}};
  if (operand < 0) return s;  // zero fill has no position
  for (size_t a = 0; a < s.c.size(); ++a) s.c[a] = walk.at[a] + k * walk.step[a];
  return s;
}

// At every position, along every axis and in both directions: the claimed run is no longer than asked for, and each of
// its elements is where the view says.
void check_runs(const Expr& y) {
  const Shape& shape = y.shape();
  for (int64_t linear = 0; linear < shape.numel(); ++linear) {
    const Coord c = shape.unravel(linear);
    for (int axis = 0; axis < shape.rank(); ++axis)
      for (const int64_t step : {1, 2, -1}) {
        const size_t a = static_cast<size_t>(axis);
        const int64_t rest = step < 0 ? c[a] + 1 : (shape[axis] - c[a] + step - 1) / step;
        Walk walk{c, {}, rest};
        walk.step[a] = step;
        const int operand = follow(*y.get(), walk, odd);
        ASSERT_GE(walk.run, 1) << print(y);
        ASSERT_LE(walk.run, rest) << print(y);
        for (int64_t k = 0; k < walk.run; ++k) {
          Walk there{c, {}, 1};
          there.at[a] += k * step;
          const int from = follow(*y.get(), there, odd);
          ASSERT_EQ(element(operand, walk, k), element(from, there, 0))
              << "axis " << axis << ", element " << linear << " + " << k << " times " << step << " of " << walk.run
              << "\n"
              << print(y);
        }
      }
    // A walk with step 0 stays on one element.
    Walk still{c, {}, 5};
    follow(*y.get(), still, odd);
    ASSERT_EQ(still.step, Coord{}) << print(y);
    ASSERT_EQ(still.run, 5) << print(y);
  }
}

TEST(Views, RunsAreWhereTheViewSays) {
  for (const NodeType* type : testing::types_of(Family::View)) {
    Graph g;
    const std::vector<Expr> nodes = testing::sample_nodes(g, *type, 40);
    EXPECT_GE(nodes.size(), 10u) << type->name;
    for (const Expr& y : nodes) check_runs(y);
  }
}

TEST(Views, RunsOfUsualShapesAreLong) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {2, 6, 4, 8});
  const auto run = [](const Expr& y, int axis) {
    Walk walk{{}, {}, y.shape()[axis]};
    walk.step[static_cast<size_t>(axis)] = 1;
    follow(*y.get(), walk, odd);
    return walk;
  };
  EXPECT_EQ(run(reshape(x, {2, 24, 8}), 2).run, 8);
  EXPECT_EQ(run(reshape(x, {48, 8}), 0).run, 4);  // rows 4, 5, .. are in the next row of pixels
  EXPECT_EQ(run(reshape(x, {2, 6, 4, 2, 4}), 4).run, 4);
  EXPECT_EQ(run(reshape(x, {2, 6, 32}), 2).run, 8);
  EXPECT_EQ(run(permute(x, {0, 2, 1, 3}), 3).run, 8);
  EXPECT_EQ(run(permute(x, {0, 2, 3, 1}), 3).step[1], 1);
  EXPECT_EQ(run(concat({x, x}, 3), 3).run, 8);
  EXPECT_EQ(run(upsample2x(x), 3).run, 8);
  EXPECT_EQ(run(broadcast(slice(x, 3, 0, 1), {2, 6, 4, 8}), 3).step, Coord{});
  EXPECT_EQ(run(flip(x, 3), 3).run, 8);
  EXPECT_EQ(run(flip(x, 3), 3).step[3], -1);
  EXPECT_EQ(run(pair_swap(x), 3).run, 2);
  EXPECT_EQ(run(pair_swap(x), 2).run, 4);
}

TEST(Views, FlippedAndSwapped) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {2, 4});
  const testing::Values values = {{"x", {1, 2, 3, 4, 5, 6, 7, 8}}};
  Oracle oracle = testing::oracle_of(values);
  EXPECT_EQ(oracle.eval(flip(x, 1)), (std::vector<double>{4, 3, 2, 1, 8, 7, 6, 5}));
  EXPECT_EQ(oracle.eval(flip(x, -2)), (std::vector<double>{5, 6, 7, 8, 1, 2, 3, 4}));
  EXPECT_EQ(oracle.eval(pair_swap(x)), (std::vector<double>{2, 1, 4, 3, 6, 5, 8, 7}));
}

TEST(Views, InversesUndo) {
  int checked = 0;
  for (const NodeType* type : testing::types_of(Family::View)) {
    Graph g;
    for (const Expr& y : testing::sample_nodes(g, *type, 10)) {
      if (!type->inverse) continue;
      const testing::Values values = testing::random_values(y, -2, 2);
      Oracle oracle = testing::oracle_of(values);
      EXPECT_EQ(oracle.eval(type->inverse(*y, y)), oracle.eval(y->in[0])) << print(y);
      ++checked;
    }
  }
  EXPECT_GE(checked, 20);
}

}  // namespace
}  // namespace tenon
