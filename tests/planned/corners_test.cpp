// Programs from corners that random ones do not reach: their plans must mean the same and give the same results.
#include <gtest/gtest.h>

#include "tenon/expr/ops.h"
#include "tests/planned/check.h"

namespace tenon::planned {
namespace {

class Corners : public testing::Test {
 protected:
  Program program{std::make_shared<Graph>(), {}};
  Graph& g = *program.graph;

  Expr in(const std::string& name, const Shape& shape) { return input(g, name, DType::F32, shape); }
  Expr weight(const std::string& name, const Shape& shape) { return param(g, name, DType::F32, shape); }

  void expect(std::vector<Result> results, const PlanOptions& options = {}) {
    program.results = std::move(results);
    SCOPED_TRACE(program.text());
    const Finding meaning = check_meaning(program, options);
    EXPECT_FALSE(meaning) << meaning.what;
    for (const Device& device : devices()) {
      const Finding run = check_run(program, options, device);
      EXPECT_FALSE(run) << run.what;
    }
  }
};

// Attention's result is stored in the layout of the layer that reads it: its materialized value is another tensor.
TEST_F(Corners, AMaterializedValueThatIsStoredAsRows) {
  const Expr q = in("q", {1, 2, 5, 8}), y = attention(q, q, q, 0.35), pinned = tanh(materialize(y));
  const Expr rows = linear(reshape(permute(y, {0, 2, 1, 3}), {1, 5, 16}), weight("w", {6, 16}));
  expect({{"rows", rows}, {"again", attention(y, y, y, 0.35)}, {"pinned", pinned}});
}

// Launches name what they compute themselves; the caller's tensors may have names that look alike.
TEST_F(Corners, NamesThatLookLikeALaunchsOwn) {
  for (const char* name : {"acc.0", "let.0", "companion", "copy.0", "hole.0", "bias", "assumed.0"}) {
    const Expr s = in("s", {32}), small = broadcast(tanh(exp(s) * s), {64, 32});
    expect({{"scaled", in("x", {64, 32}) * small + broadcast(in(name, {32}), {64, 32})}});
    expect({{"sum", linear(in("a", {4, 8}), weight("w", {6, 8})) + in(name, {4, 6})}});
    expect({{"plain", in("b", {4, 8}) + in(name, {4, 8})}});
  }
}

TEST_F(Corners, SeveralReshapedStatisticsOfAnImage) {
  const Expr x = in("x", {2, 3, 4, 8}), y = conv2d(x, weight("w", {8, 8, 1, 1}));
  const auto mean_of = [](const Expr& e) { return reshape(mean(e, ReduceOver::Inner), {2, 8}); };
  const auto variance_of = [](const Expr& e) { return reshape(variance(e, ReduceOver::Inner), {2, 8}); };
  expect({{"variance", variance_of(x)}, {"mean", mean_of(x)}});
  expect({{"mean", mean(x, ReduceOver::Inner)}, {"variance", variance_of(x)}});
  expect({{"mean", mean(x, ReduceOver::Inner)}, {"again", mean_of(x)}, {"variance", variance_of(x)}});
  expect({{"mean", mean_of(x)}, {"deviation", sqrt(variance_of(x))}});
  expect({{"y", y}, {"variance", variance_of(y)}, {"mean", mean_of(y)}});
}

TEST_F(Corners, StatisticsOfAnImageAsRowsOfAState) {
  const Expr s = state(g, "s", DType::F32, {5, 8}),
             rows = reshape(mean(in("x", {2, 3, 4, 8}), ReduceOver::Inner), {2, 8});
  expect({{"s", update_rows(s, slice(iota(g, 5), 0, 2, 4), rows)}});
}

TEST_F(Corners, LayersWhoseWeightsAreLayersOfTheSameRows) {
  const Expr x = weight("x", {4, 32}), k = linear(x, linear(x, weight("w", {32, 32})));
  expect({{"product", linear(in("z", {3, 4}), k)}});
}

TEST_F(Corners, SiblingsWithOneBiasForAllColumns) {
  const Expr x = in("x", {4, 32});
  const auto layer = [&](const std::string& w) { return linear(x, weight(w, {8, 32})) + weight(w + ".b", {1}); };
  expect({{"product", linear(layer("v"), layer("w"))}});
}

TEST_F(Corners, AnUpdateOfAnUpdateThatAnotherUpdateReads) {
  const Expr s = state(g, "s", DType::F32, {5, 8}), copy = state(g, "copy", DType::F32, {5, 8}), x = in("x", {1, 8});
  const auto row = [&](int64_t i) { return slice(iota(g, 5), 0, i, i + 1); };
  const Expr twice = update_rows(update_rows(s, row(0), x), row(1), x);
  expect({{"copy", update_rows(copy, iota(g, 5), twice)}, {"s", twice}, {"old", s * 2.0}});
}

TEST_F(Corners, RowsOfFewBitsInAState) {
  for (const DType type : {DType::BF16, DType::F16}) {
    const std::string name(name_of(type));
    const Expr s = state(g, name, type, {5, 8}), rows = cast(tanh(in("x" + name, {2, 8})), type);
    expect({{name, update_rows(s, slice(iota(g, 5), 0, 2, 4), rows)}});
  }
}

// Slices of slices, along one axis and along several.
TEST_F(Corners, AStencilInBothDirections) {
  Expr x = in("x", {30, 30});
  for (int i = 0; i < 7; ++i) {
    const int axis = i % 2;
    const int64_t n = x.shape()[axis];
    x = slice(x, axis, 0, n - 1) * 0.5 + slice(x, axis, 1, n) * 0.25;
  }
  expect({{"y", x}});
}

// No tile of a GPU holds three parts of its columns side by side.
TEST_F(Corners, TwoOfThreePartsTogether) {
  for (const int64_t width : {5, 40}) {
    const auto part = [&](const Expr& y, int i) { return slice(y, -1, i * width, (i + 1) * width); };
    const std::string id = std::to_string(width);
    const Expr y = linear(in("x" + id, {70, 20}), weight("w" + id, {3 * width, 20}));
    expect({{"sum", part(y, 1) + part(y, 2)}});
    expect({{"all", part(y, 0) * part(y, 1) + part(y, 2)}, {"one", tanh(part(y, 1))}});
    const Expr z = conv2d(in("picture" + id, {1, 4, 5, 16}), weight("v" + id, {3 * width, 16, 1, 1}));
    expect({{"sum", part(z, 0) + part(z, 2)}});
  }
}

// A GPU may round a product once with a sum that reads it, but other readers must see the same number.
TEST_F(Corners, AProductLessItself) {
  const Expr product = in("x", {33, 12}) * in("y", {33, 12});
  expect({{"zero", product - flip(flip(product, 1), 1)}, {"sum", product + 1.0}});
  expect({{"rest", sum(product, ReduceOver::Last)}, {"zero", product - materialize(product)}});
}

// Each has memory of its own: inputs, constants and products too, and values that become equal only in a plan.
TEST_F(Corners, EqualResults) {
  const Expr x = in("x", {6, 8}), w = weight("w", {4, 8}), y = linear(x, w), z = tanh(y) + 1.0;
  expect({{"a", y}, {"b", y}, {"c", y}});
  expect({{"d", z}, {"e", stop_gradient(z)}});
  expect({{"f", x * 2.0}, {"g", x * 2.0}, {"h", linear(x * 2.0, w)}});
  expect({{"i", w * 2.0}, {"j", w * 2.0}});
}

}  // namespace
}  // namespace tenon::planned
