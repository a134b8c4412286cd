// Nodes as values: the registry, hash-consing, rates, traversal, rebuilding.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/expr/samples.h"

namespace tenon {
namespace {

TEST(Registry, EveryAnnouncedNodeIsThereOnce) {
  std::set<std::string_view> names;
  for (const NodeType* t : node_types()) {
    EXPECT_TRUE(names.insert(t->name).second) << t->name << " twice";
    EXPECT_EQ(find_node_type(t->name), t);
    for (char c : t->name) EXPECT_TRUE((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_') << t->name;
  }
  size_t announced = 0;
  for (const auto& file : std::filesystem::directory_iterator(TENON_SOURCE_DIR "/tenon/expr/nodes")) {
    std::ifstream in(file.path());
    for (std::string line; std::getline(in, line);) announced += line.starts_with("NODE(");
  }
  EXPECT_EQ(node_types().size(), announced);
  EXPECT_EQ(find_node_type("no such node"), nullptr);
}

TEST(Registry, EveryNodeHasWhatItsFamilyNeeds) {
  for (const NodeType* t : node_types()) {
    EXPECT_NE(t->infer, nullptr) << t->name;
    EXPECT_EQ(t->eval != nullptr, t->family == Family::Pointwise) << t->name;
    EXPECT_EQ(t->map != nullptr, t->family == Family::View) << t->name;
    EXPECT_EQ(t->place != nullptr, t->family == Family::Sink) << t->name;
    EXPECT_TRUE(t->reduce == nullptr || t->family == Family::Reduce) << t->name;
    EXPECT_TRUE(t->reference == nullptr || t->family == Family::Anchor || t->family == Family::Sink) << t->name;
    const bool valued = t->family == Family::Reduce || t->family == Family::Anchor || t->family == Family::Sink;
    EXPECT_EQ((t->reduce != nullptr) + (t->reference != nullptr) + (t->apart != nullptr), valued) << t->name;
    EXPECT_TRUE(t->companion_of.empty() || find_node_type(t->companion_of)->family == Family::Anchor) << t->name;
    const bool differentiable =
        t->family == Family::Pointwise || t->family == Family::View || t->family == Family::Reduce;
    EXPECT_TRUE(t->vjp != nullptr || !differentiable) << t->name;
  }
}

TEST(HashConsing, EqualNodesAreOneNode) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {2, 3}), y = input(g, "y", DType::F32, {2, 3});
  EXPECT_EQ(input(g, "x", DType::F32, {2, 3}), x);
  EXPECT_EQ(silu(x) * y + 1.0, silu(x) * y + 1.0);
  const size_t size = g.size();
  (void)(silu(x) * y + 1.0);
  EXPECT_EQ(g.size(), size);
}

TEST(HashConsing, DifferentNodesAreNot) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {2, 3}), y = input(g, "y", DType::F32, {2, 3});
  const std::vector<Expr> all = {x,
                                 y,
                                 input(g, "x", DType::BF16, {2, 3}),
                                 input(g, "x", DType::F32, {3, 2}),
                                 input(g, "x", DType::F32, {2, 3}, Rate::Prompt),
                                 param(g, "x", DType::F32, {2, 3}),
                                 x - y,
                                 y - x,
                                 x + y,
                                 clamp(x, 0.0, 1.0),
                                 clamp(x, 0.0, 2.0),
                                 cast(x, DType::F16),
                                 cast(x, DType::BF16),
                                 round(x, DType::BF16),
                                 reshape(x, {6}),
                                 reshape(x, {1, 6}),
                                 sum(x)};
  std::set<const Node*> nodes;
  for (const Expr& e : all) EXPECT_TRUE(nodes.insert(e.get()).second) << print(e);
}

TEST(HashConsing, NumbersCompareByTheirBits) {
  Graph g;
  EXPECT_EQ(constant(g, std::nan("")), constant(g, std::nan("")));
  EXPECT_NE(constant(g, 0.0), constant(g, -0.0));
  const Expr x = input(g, "x", DType::F32, {1});
  EXPECT_EQ(clamp(x, std::nan(""), 1.0), clamp(x, std::nan(""), 1.0));
  EXPECT_NE(clamp(x, 0.0, 1.0), clamp(x, -0.0, 1.0));
}

TEST(HashConsing, EverySampleIsMadeOnce) {
  for (const NodeType* type : node_types()) {
    if (type->family != Family::Pointwise && type->family != Family::View && type->family != Family::Reduce) continue;
    Graph g;
    for (const Expr& e : testing::sample_nodes(g, *type, 8)) {
      EXPECT_EQ(g.make(*type, e->in, e->attrs), e);
      for (const Expr& x : e->in) EXPECT_LT(x->id, e->id);
    }
  }
}

TEST(Shapes, PointwiseAndReduceNodesInferAsTheirFamilySays) {
  for (const NodeType* type : testing::types_of(Family::Pointwise)) {
    Graph g;
    for (const Expr& e : testing::sample_nodes(g, *type, 4)) {
      EXPECT_EQ(e.shape(), e->in[0].shape());
      const bool same = e.is<nodes::Materialize>() || e.is<nodes::Barrier>() || e.is<nodes::StopGradient>();
      const DType kept = same ? e->in[0].dtype() : DType::F32;
      EXPECT_TRUE(e.dtype() == kept || (type->round && e.dtype() == e->attrs.dtype)) << print(e);
    }
  }
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {2, 3, 4, 5});
  EXPECT_EQ(sum(x).shape(), (Shape{2, 3, 4, 1}));
  EXPECT_EQ(sum(x, ReduceOver::Inner).shape(), (Shape{2, 1, 1, 5}));
  EXPECT_EQ(sum(x).dtype(), DType::F32);
}

TEST(Shapes, Views) {
  Graph g;
  const Expr x = input(g, "x", DType::BF16, {2, 3, 4, 5}), i = input(g, "i", DType::I32, {7, 6});
  EXPECT_EQ(permute(x, {3, 0, 2, 1}).shape(), (Shape{5, 2, 4, 3}));
  EXPECT_EQ(gather(x, i).shape(), (Shape{7, 6, 3, 4, 5}));
  EXPECT_EQ(gather(x, scalar(g, "s", DType::I32)).shape(), (Shape{3, 4, 5}));
  EXPECT_EQ(pad(x, {0, 0, 1, 2, 0, 0, 3, 0}).shape(), (Shape{2, 6, 4, 8}));
  EXPECT_EQ(concat({x, x}, -1).shape(), (Shape{2, 3, 4, 10}));
  EXPECT_EQ(upsample2x(x).shape(), (Shape{2, 6, 8, 5}));
  EXPECT_EQ(slice(x, -1, 1, 1).shape(), (Shape{2, 3, 4, 0}));
  EXPECT_EQ(upsample2x(x).dtype(), DType::BF16);
}

TEST(Shapes, FactoriesReturnTheOperandWhereNothingHappens) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {2, 3});
  EXPECT_EQ(reshape(x, {2, 3}), x);
  EXPECT_EQ(reshape(reshape(x, {6}), {2, 3}), x);
  EXPECT_EQ(permute(x, {0, 1}), x);
  EXPECT_EQ(slice(x, 1, 0, 3), x);
  EXPECT_EQ(pad(x, {0, 0, 0, 0}), x);
  EXPECT_EQ(concat({x}, 0), x);
  EXPECT_EQ(broadcast(x, {2, 3}), x);
  EXPECT_EQ(cast(x, DType::F32), x);
}

TEST(Rates, ANodeChangesAsOftenAsItsFastestOperand) {
  Graph g;
  const Expr step = input(g, "x", DType::F32, {2}), prompt = input(g, "p", DType::F32, {2}, Rate::Prompt);
  const Expr schedule = scalar(g, "t", DType::F32, Rate::Schedule), weight = param(g, "w", DType::F32, {2});
  EXPECT_EQ((weight * 2.0)->rate, Rate::Constant);
  EXPECT_EQ((weight * schedule)->rate, Rate::Schedule);
  EXPECT_EQ((prompt * schedule)->rate, Rate::Prompt);
  EXPECT_EQ((prompt * step)->rate, Rate::Step);
  EXPECT_EQ(state(g, "s", DType::F32, {2})->rate, Rate::Step);
}

TEST(Traversal, OperandsFirstEachOnce) {
  Graph g;
  const Expr x = input(g, "x", DType::F32, {2}), y = silu(x) + x, z = y * y;
  const std::vector<Expr> order = topological(std::array{z, y});
  EXPECT_EQ(order, (std::vector<Expr>{x, silu(x), y, z}));
}

TEST(Traversal, DeepChainsDoNotOverflowTheStack) {
  Graph g;
  Expr x = input(g, "x", DType::F32, {1});
  for (int i = 0; i < 100000; ++i) x = sin(x);
  EXPECT_EQ(topological(std::array{x}).size(), 100001u);
  Graph h;
  EXPECT_EQ(parse(h, print(x)).size(), 1u);
}

TEST(Rebuild, ReplacesAndCopiesBetweenGraphs) {
  Graph g, h;
  const Expr x = input(g, "x", DType::F32, {2}), y = exp(silu(x) + 1.0);
  Memo memo;
  const Expr z = rebuild(
      h, y,
      [&](const Expr& e, std::span<const Expr> in) { return e.is<nodes::Silu>() ? in[0] * sigmoid(in[0]) : Expr(); },
      memo);
  const Expr hx = input(h, "x", DType::F32, {2});
  EXPECT_EQ(z, exp(hx * sigmoid(hx) + 1.0));
  EXPECT_EQ(memo.at(x.get()), hx);
}

}  // namespace
}  // namespace tenon
