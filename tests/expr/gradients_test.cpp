// Gradient rules against central finite differences through the oracle, in fp64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/expr/vjp.h"
#include "tests/expr/samples.h"

namespace tenon {
namespace {
using testing::Values;

struct Checked {
  int compared = 0, skipped = 0;
};

// Gradients of sum(seed * y) with respect to every floating-point leaf below y, element by element. An element for
// which two step widths disagree is at a kink and skipped.
Checked check_gradients(const Expr& y, Values values) {
  std::vector<Expr> leaves;
  for (const Expr& e : topological(std::array{y}))
    if (is_memory_leaf(e) && is_float(e.dtype())) leaves.push_back(e);
  const Expr seed = input(y.graph(), "seed", DType::F64, y.shape());
  values.merge(testing::random_values(seed, 0.5, 1.5, 99));
  const std::vector<Expr> grads = gradients(y, seed, leaves);

  const auto loss = [&] {
    const std::vector<double> out = testing::oracle_of(values).eval(y);
    double total = 0;
    for (size_t i = 0; i < out.size(); ++i) total += out[i] * values.at("seed")[i];
    return total;
  };
  Checked count;
  std::vector<std::vector<double>> analytic;
  for (const Expr& g : grads) analytic.push_back(testing::oracle_of(values).eval(g));
  for (size_t k = 0; k < leaves.size(); ++k) {
    std::vector<double>& x = values.at(leaves[k]->attrs.text);
    EXPECT_EQ(grads[k].shape(), leaves[k].shape()) << print(y);
    for (size_t i = 0; i < x.size(); ++i) {
      const double kept = x[i];
      const auto slope = [&](double h) {
        x[i] = kept + h;
        const double up = loss();
        x[i] = kept - h;
        const double down = loss();
        x[i] = kept;
        return (up - down) / (2 * h);
      };
      const double fine = slope(1e-5), coarse = slope(4e-5), scale = std::max(1.0, std::abs(fine));
      if (!(std::abs(fine - coarse) <= 2e-7 * scale)) {
        ++count.skipped;
        continue;
      }
      ++count.compared;
      EXPECT_LE(std::abs(fine - analytic[k][i]), 1e-6 * scale)
          << "element " << i << " of " << leaves[k]->attrs.text << ": " << analytic[k][i] << ", not " << fine << "\n"
          << print(y);
    }
  }
  return count;
}

// `values`, plus random ones for the leaves of x.
Values with_random(Values values, const Expr& x) {
  values.merge(testing::random_values(x, -2, 2));
  return values;
}

TEST(Gradients, EveryPointwiseNode) {
  for (const NodeType* type : testing::types_of(Family::Pointwise)) {
    if (type->round) continue;                                // straight through: RoundingPassesTheGradient
    if (type == &node_type<nodes::StopGradient>()) continue;  // NoneFlowsThroughAStop
    Graph g;
    Checked total;
    for (const Expr& y : testing::sample_nodes(g, *type, 2))
      for (auto [low, high] : {std::pair{0.3, 2.0}, std::pair{-2.0, -0.3}}) {
        const Checked c = check_gradients(y, testing::random_values(y, low, high));
        total.compared += c.compared;
        total.skipped += c.skipped;
      }
    EXPECT_GE(total.compared, 4) << type->name;
    EXPECT_GE(total.compared, total.skipped) << type->name;
  }
}

TEST(Gradients, EveryView) {
  for (const NodeType* type : testing::types_of(Family::View)) {
    Graph g;
    const std::vector<Expr> nodes = testing::sample_nodes(g, *type, 12);
    EXPECT_GE(nodes.size(), 5u) << "no valid samples of " << type->name;
    for (const Expr& y : nodes) EXPECT_EQ(check_gradients(y, testing::random_values(y, -2, 2)).skipped, 0) << print(y);
  }
}

TEST(Gradients, EveryReductionOverBothKindsOfAxes) {
  for (const NodeType* type : testing::types_of(Family::Reduce)) {
    Graph g;
    int modes[2] = {};
    for (const Expr& y : testing::sample_nodes(g, *type, 8)) {
      ++modes[y->attrs.ints[0]];
      EXPECT_EQ(check_gradients(y, testing::random_values(y, -2, 2)).skipped, 0) << print(y);
    }
    EXPECT_GT(modes[0], 0) << type->name;
    EXPECT_GT(modes[1], 0) << type->name;
  }
}

TEST(Gradients, RoundingPassesTheGradient) {
  for (const NodeType* type : testing::types_of(Family::Pointwise)) {
    if (!type->round) continue;
    Graph g;
    for (const Expr& y : testing::sample_nodes(g, *type, 4)) {
      const Expr seed = input(g, "seed", DType::F32, y.shape());
      EXPECT_EQ(gradients(y, seed, y->in)[0], seed) << type->name;
    }
  }
}

TEST(Gradients, NoneFlowsThroughIntegers) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {3}), seed = input(g, "s", DType::F32, {3});
  for (const DType type : {DType::I64, DType::I32, DType::I16, DType::I8, DType::U8, DType::Bool})
    EXPECT_EQ(gradients(x * cast(x * 2.0, type), seed, std::array{x})[0], seed * cast(x * 2.0, type)) << name_of(type);
}

TEST(Gradients, BroadcastOperandsGetTheSum) {
  Graph g;
  const Expr a = input(g, "a", DType::F64, {2, 1, 3}), b = input(g, "b", DType::F64, {4, 1}),
             c = scalar(g, "c", DType::F64);
  const Expr y = a * b + sin(a * c) / b;
  EXPECT_EQ(check_gradients(y, testing::random_values(y, 0.3, 2)).skipped, 0);
}

TEST(Gradients, ViewsWithParticularShapes) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {2, 3, 5, 2}), row = input(g, "row", DType::F64, {4, 3});
  const Expr index = input(g, "index", DType::I32, {3, 2});
  for (const Expr& y : {upsample2x(x), resize_nearest(x, 7, 3), resize_nearest(x, 2, 11), resize_nearest(x, 3, 9),
                        pad(x, {0, 1, 2, 0, 0, 0, 1, 1}), concat({x, x, x}, 2), gather(row, index),
                        transpose(reshape(x, {6, 10})), broadcast(slice(x, 2, 4, 5), {2, 3, 4, 2})})
    EXPECT_EQ(check_gradients(y, testing::random_values(y, -2, 2)).skipped, 0) << print(y);
}

TEST(Gradients, LinearPlainAndBatched) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {2, 3, 4}), w = param(g, "w", DType::F64, {5, 4});
  const Expr each = param(g, "each", DType::F64, {2, 5, 4}), v = input(g, "v", DType::F64, {4});
  for (const Expr& y : {linear(x, w), linear(x, each), linear(v, w)})
    EXPECT_EQ(check_gradients(y, testing::random_values(y, -2, 2)).skipped, 0) << print(y);
}

TEST(Gradients, NoneFlowsThroughAStop) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {3}), seed = input(g, "s", DType::F32, {3});
  EXPECT_EQ(gradients(stop_gradient(silu(x)), seed, std::array{x})[0], broadcast(constant(g, 0), {3}));
  EXPECT_EQ(gradients(x * stop_gradient(x), seed, std::array{x})[0], seed * stop_gradient(x));
  EXPECT_EQ(gradients(barrier(x, 2), seed, std::array{x})[0], seed);
}

// A caller's rule for some nodes replaces theirs; the others keep their own.
TEST(Gradients, ARuleOfTheCallers) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {3}), y = exp(x) * x;
  const GradientRule twice = [](const Expr& node, const Expr& d) {
    return node.is<nodes::Exp>() ? std::vector<Expr>{d * 2.0} : std::vector<Expr>();
  };
  const Values values{{"x", {-1, 0.5, 2}}};
  const std::vector<double> got = testing::oracle_of(values).eval(gradients(y, {}, std::array{x}, twice)[0]);
  for (size_t i = 0; i < 3; ++i) {
    const double at = values.at("x")[i];
    EXPECT_NEAR(got[i], std::exp(at) + 2 * at, 1e-12) << i;
  }
}

TEST(Gradients, GatherAddsRowsUp) {
  Graph g;
  const Expr table = input(g, "table", DType::F64, {9, 3}), number = scalar(g, "i", DType::I32);
  const auto of = [&](const Shape& shape) { return input(g, "i" + shape.str(), DType::I32, shape); };
  Values values = {{"i", {8}}};
  for (const Shape& shape : {Shape{4}, Shape{2, 2, 2}, Shape{9}, Shape{5, 4}, Shape{1}}) {
    std::vector<double>& index = values["i" + shape.str()];
    for (int64_t i = 0; i < shape.numel(); ++i) index.push_back(static_cast<double>(i * i % 9));
    EXPECT_EQ(check_gradients(gather(table, of(shape)), with_random(values, table)).skipped, 0) << shape.str();
  }
  EXPECT_EQ(check_gradients(gather(table, number), with_random(values, table)).skipped, 0);
  const Expr none = gradients(gather(table, of({0})), {}, std::array{table})[0];
  EXPECT_EQ(none, broadcast(constant(g, 0), {9, 3}));
}

TEST(Gradients, AddRows) {
  Graph g;
  const Expr rows = input(g, "rows", DType::F32, {4, 2}), index = input(g, "index", DType::I32, {4});
  const Values values = {{"rows", {1, 2, 3, 4, 5, 6, 7, 8}}, {"index", {2, 0, 2, 5}}};
  using ::testing::ElementsAre;
  EXPECT_THAT(testing::oracle_of(values).eval(add_rows(rows, index, 6)),
              ElementsAre(3, 4, 0, 0, 6, 8, 0, 0, 0, 0, 7, 8));
  const Values few = {{"rows", {1, 2, 3, 4, 5, 6, 7, 8}}, {"index", {1, 0, 1, 1}}};
  EXPECT_THAT(testing::oracle_of(few).eval(add_rows(rows, index, 2)), ElementsAre(3, 4, 13, 16));
  EXPECT_THROW(add_rows(rows, index, int64_t{1} << 25), Error);
}

TEST(Gradients, Convolutions) {
  struct Case {
    Shape x, w;
    int64_t stride;
    std::array<int64_t, 4> pads;
  };
  for (const Case& c :
       {Case{{2, 5, 4, 3}, {2, 3, 3, 3}, 1, {1, 1, 1, 1}}, Case{{1, 6, 7, 2}, {3, 2, 3, 3}, 2, {0, 0, 1, 1}},
        Case{{1, 7, 5, 2}, {2, 2, 3, 2}, 2, {1, 0, 1, 2}}, Case{{2, 4, 4, 2}, {3, 2, 1, 1}, 1, {0, 0, 0, 0}},
        Case{{1, 7, 8, 2}, {2, 2, 2, 2}, 2, {0, 0, 0, 0}}, Case{{1, 8, 5, 1}, {2, 1, 2, 1}, 3, {0, 1, 0, 0}},
        Case{{1, 2, 1, 2}, {2, 2, 2, 1}, 1, {3, 2, 0, 4}}, Case{{1, 6, 6, 1}, {1, 1, 3, 3}, 3, {1, 2, 2, 0}},
        Case{{1, 2, 1, 3}, {3, 3, 3, 3}, 3, {2, 4, 4, 0}}, Case{{1, 2, 1, 2}, {2, 2, 2, 2}, 3, {0, 5, 2, 0}}}) {
    Graph g;
    const Expr y = conv2d(input(g, "x", DType::F64, c.x), param(g, "w", DType::F64, c.w), c.stride, c.pads);
    EXPECT_EQ(check_gradients(y, testing::random_values(y, -2, 2)).skipped, 0) << print(y);
  }
}

TEST(Gradients, Attention) {
  for (const bool causal : {false, true})
    for (const int64_t kv_heads : {1, 2, 4}) {
      Graph g;
      const Expr q = input(g, "q", DType::F64, {2, 4, 3, 2}), k = input(g, "k", DType::F64, {2, kv_heads, 5, 2}),
                 v = input(g, "v", DType::F64, {2, kv_heads, 5, 2});
      const Expr y = attention(q, k, v, 0.7, causal);
      for (const Expr& x : {y, attention_lse(y)})
        EXPECT_EQ(check_gradients(x, testing::random_values(x, -2, 2)).skipped, 0) << print(x);
    }
}

TEST(Gradients, AttentionOverSomeOfTheKeys) {
  for (const bool causal : {false, true})
    for (const Shape& counts : {Shape{}, Shape{2}}) {
      Graph g;
      const Expr q = input(g, "q", DType::F64, {2, 2, 3, 2}), k = input(g, "k", DType::F64, {2, 1, 6, 2}),
                 v = input(g, "v", DType::F64, {2, 1, 6, 2});
      const Expr y = attention(q, k, v, 0.7, causal, input(g, "keys", DType::I32, counts));
      for (const Expr& x : {y, attention_lse(y)}) {
        Values values{{"keys", counts.rank() ? std::vector<double>{4, 3} : std::vector<double>{5}}};
        EXPECT_EQ(check_gradients(x, with_random(values, x)).skipped, 0) << print(x);
      }
    }
}

TEST(Gradients, CompositesWithSharedSubexpressions) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {2, 4, 3}), w = param(g, "w", DType::F64, {3, 3});
  const Expr centred = x - mean(x);
  const Expr norm = centred * rsqrt(mean(centred * centred) + 1e-5);
  const Expr e = exp(x - reduce_max(x)), softmax = e / sum(e);
  const Expr over_inner = (x - mean(x, ReduceOver::Inner)) * rsqrt(sumsq(x, ReduceOver::Inner) / 4.0 + 1e-3);
  const Expr block = x + linear(silu(norm), w) * gelu(norm);
  for (const Expr& y : {norm, softmax, over_inner, block})
    EXPECT_EQ(check_gradients(y, testing::random_values(y, -2, 2)).skipped, 0) << print(y);
}

TEST(Gradients, OfGradients) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {5});
  for (const Expr& y : {silu(x), gelu(x), tanh(x), x / (x * x + 1.0), pow(x * x + 0.5, sin(x))}) {
    const Expr first = gradients(y, {}, std::array{x})[0];
    EXPECT_EQ(check_gradients(first, testing::random_values(first, -2, 2)).skipped, 0) << print(y);
  }
}

// The behaviour that nodes' comments promise where a derivative does not exist.
TEST(Gradients, AtKinks) {
  Graph g;
  const Expr a = input(g, "a", DType::F64, {4}), b = input(g, "b", DType::F64, {4});
  const Values values = {{"a", {0, -0.0, 2, -INFINITY}}, {"b", {0, 0, 2, 1}}};
  const auto slope = [&](const Expr& y, const Expr& x) {
    return testing::oracle_of(values).eval(gradients(y, {}, std::array{x})[0]);
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(slope(abs(a), a), ElementsAre(0, 0, 1, -1));
  EXPECT_THAT(slope(relu(a), a), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(slope(leaky_relu(a, 0.5), a), ElementsAre(0.5, 0.5, 1, 0.5));
  EXPECT_THAT(slope(min(a, b), a), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(slope(max(a, b), a), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(slope(max(a, b), b), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(slope(clamp(a, 0.0, 2.0), a), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(slope(reduce_max(b), b), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(slope(reduce_max(b * 0.0), b), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(slope(reduce_max(b - b + 1.0), b), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(slope(reduce_max(min(b, b * 0.0 + 1.0)), b), ElementsAre(0, 0, 0, 0.5));
  EXPECT_THAT(slope(pow(b, constant(g, 2)), b), ElementsAre(0, 0, 4, 2));
  EXPECT_THAT(slope(pow(b, constant(g, 0)), b), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(slope(floor(b), b), ElementsAre(0, 0, 0, 0));
}

// Not 0 times the infinite slope of a root at 0.
TEST(Gradients, WhatIsNotSelectedGetsNone) {
  Graph g;
  const Expr x = input(g, "x", DType::F64, {2}), zero = constant(g, 0);
  const Expr positive = less(zero, x);
  for (const Expr& y : {relu(x), max(x, zero), max(zero, x), clamp(x, 0.0, 9.0), where(positive, x, zero),
                        -min(-x, zero), where(less(x, zero), zero, x)}) {
    const Expr slope = gradients(sqrt(y), {}, std::array{x})[0];
    EXPECT_THAT(testing::oracle_of({{"x", {-1, 4}}}).eval(slope), ::testing::ElementsAre(0, 0.25)) << y->name();
  }
}

TEST(Gradients, ZerosWhereNothingDepends) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {3}), other = input(g, "other", DType::F32, {2, 2});
  const Expr grad = gradients(silu(x), {}, std::array{other})[0];
  EXPECT_EQ(grad, broadcast(constant(g, 0), {2, 2}));
}

TEST(Gradients, OfAnInnerNodeAndOfTheResultItself) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {3}), seed = input(g, "s", DType::F32, {3});
  const Expr inner = exp(x), y = inner * inner;
  const std::vector<Expr> grads = gradients(y, seed, std::array{inner, y});
  EXPECT_EQ(grads[0], seed * inner + seed * inner);
  EXPECT_EQ(grads[1], seed);
}

// An anchor that is not in the tree: it may lack a rule.
struct Ruleless : Anchor {
  static constexpr auto name = "ruleless";
  static constexpr int kArity = 1;
  static void infer(std::span<const Expr> in, const Attrs&, Shape& shape) { shape = in[0].shape(); }
  static void reference(const Node&, std::span<const double* const>, double*) {}
};

TEST(Gradients, AMissingRuleIsNamed) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {3});
  const Expr y = g.make(node_type<Ruleless>(), std::array{x});
  try {
    gradients(y, {}, std::array{x});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Usage);
    EXPECT_STREQ(e.what(), "[gradients] the node ruleless(f32[3]) has no gradient rule");
  }
  // It is harmless behind a node that no wanted result depends on.
  const Expr z = input(g, "z", DType::F32, {3});
  EXPECT_EQ(gradients(y * z, {}, std::array{z})[0].shape(), z.shape());
}

TEST(Gradients, ASeedOfAnotherShapeIsRefused) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {3});
  try {
    gradients(x, constant(g, 1), std::array{x});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "[gradients] the seed has shape [], expected the result's shape [3]");
  }
}

}  // namespace
}  // namespace tenon
