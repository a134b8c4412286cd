// What a view says of the elements that follow one another: kernels load whole runs on the strength of it.
#include <gtest/gtest.h>

#include "samples.h"

namespace tenon {
namespace {

struct Source {
  int operand = 0;
  Coord c{};
  bool operator==(const Source& o) const = default;
};

Source source_of(const Expr& y, const Coord& c, const IndexReader& read) {
  At at{c, -1, 1};
  const int operand = y->type->map(*y, at, read).operand;
  if (operand < 0) at.c = {};  // zero fill has no position
  return {operand, at.c};
}

// At every position and along every axis: the claimed run is as long as asked at most, and each element of it is where
// the view says.
void check_runs(const Expr& y) {
  const IndexReader read = [](const Expr&, int64_t linear) { return linear % 2; };
  const Shape& shape = y.shape();
  for (int64_t linear = 0; linear < shape.numel(); ++linear) {
    const Coord c = shape.unravel(linear);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const int64_t rest = shape[axis] - c[static_cast<size_t>(axis)];
      At at{c, axis, rest};
      const int operand = y->type->map(*y, at, read).operand;
      ASSERT_GE(at.run, 1) << print(y);
      ASSERT_LE(at.run, rest) << print(y);
      for (int64_t k = 0; k < at.run; ++k) {
        Coord there = c;
        there[static_cast<size_t>(axis)] += k;
        Source claimed{operand, at.c};
        if (operand < 0)
          claimed.c = {};
        else if (at.axis >= 0)
          claimed.c[static_cast<size_t>(at.axis)] += k;
        ASSERT_EQ(claimed, source_of(y, there, read))
            << "axis " << axis << ", element " << linear << " + " << k << " of " << at.run << "\n"
            << print(y);
      }
    }
    // A walk that stays on one element stays on one element.
    At still{c, -1, 5};
    y->type->map(*y, still, read);
    ASSERT_EQ(still.axis, -1) << print(y);
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
    At at{{}, axis, y.shape()[axis]};
    y->type->map(*y, at, nullptr);
    return at;
  };
  EXPECT_EQ(run(reshape(x, {2, 24, 8}), 2).run, 8);
  EXPECT_EQ(run(reshape(x, {48, 8}), 0).run, 4);  // rows 4, 5, .. lie in the next row of pixels
  EXPECT_EQ(run(reshape(x, {2, 6, 4, 2, 4}), 4).run, 4);
  EXPECT_EQ(run(reshape(x, {2, 6, 32}), 2).run, 8);
  EXPECT_EQ(run(permute(x, {0, 2, 1, 3}), 3).run, 8);
  EXPECT_EQ(run(permute(x, {0, 2, 3, 1}), 3).axis, 1);
  EXPECT_EQ(run(concat({x, x}, 3), 3).run, 8);
  EXPECT_EQ(run(upsample2x(x), 3).run, 8);
  EXPECT_EQ(run(broadcast(slice(x, 3, 0, 1), {2, 6, 4, 8}), 3).axis, -1);
}

TEST(Views, InversesUndo) {
  int checked = 0;
  for (const NodeType* type : testing::types_of(Family::View)) {
    Graph g;
    for (const Expr& y : testing::sample_nodes(g, *type, 10)) {
      if (!type->invertible(*y)) continue;
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
