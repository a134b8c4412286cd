// The node of docs/adding.md, which is not in the tree: its file is all that expressions, gradients, text and the CPU's
// tapes need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "tenon/expr/vjp.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/executable.h"
#include "tests/expr/samples.h"
#include "tests/support/close.h"

namespace tenon {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

double exactly(double x) { return std::log1p(std::exp(x)); }

TEST(NewNode, IsTheOneOfTheDocumentation) {
  EXPECT_THAT(text_of(TENON_SOURCE_DIR "/docs/adding.md"),
              ::testing::HasSubstr("```cpp\n" + text_of(TENON_SOURCE_DIR "/tests/new_node/softplus.h") + "```"));
}

TEST(NewNode, IsInTheLists) {
  EXPECT_THAT(node_types(), ::testing::Contains(&node_type<nodes::Softplus>()));
  EXPECT_THAT(text_of(NODE_BODIES), ::testing::HasSubstr("NODE_BODY(Softplus, \"tenon/expr/nodes/softplus.h\")"));
}

TEST(NewNode, PrintsParsesAndMeans) {
  Graph g, h;
  const std::string text = print(softplus(input(g, "x", DType::F64, {3})));
  const Expr y = parse(h, text).at(0);
  EXPECT_EQ(print(y), text);
  const std::vector<double> x = {-30, 0, 2.5};
  EXPECT_TRUE(close(Oracle([&](const Expr&) { return x; }).eval(y),
                    std::vector<double>{exactly(-30), exactly(0), exactly(2.5)}, Tolerance{1e-12}));
}

TEST(NewNode, HasAGradient) {
  Graph g;
  const std::vector<Expr> nodes = tenon::testing::sample_nodes(g, node_type<nodes::Softplus>(), 2);
  ASSERT_EQ(nodes.size(), 2u);
  for (const Expr& y : nodes) {
    tenon::testing::Values values = tenon::testing::random_values(y, -2, 2);
    const Expr x = y->in[0], ones = broadcast(constant(g, 1), y.shape());
    const std::vector<double> slope = tenon::testing::oracle_of(values).eval(gradients(y, ones, std::array{x})[0]);
    for (size_t i = 0; i < slope.size(); ++i) {
      const double at = values.at(x->attrs.text)[i];
      EXPECT_NEAR(slope[i], (exactly(at + 1e-5) - exactly(at - 1e-5)) / 2e-5, 1e-8);
    }
  }
}

// In the hole of a product, in its epilogue, and on its own.
TEST(NewNode, RunsOnTheCpu) {
  constexpr int64_t kRows = 7, kColumns = 40;
  Graph g;
  const Expr x = input(g, "x", DType::F32, {kRows, kColumns}), w = param(g, "w", DType::F32, {kColumns, kColumns});
  const Expr y = softplus(linear(softplus(x), w)), alone = softplus(x * 3.0);
  std::vector<float> xs(kRows * kColumns), ws(kColumns * kColumns);
  for (size_t i = 0; i < xs.size(); ++i) xs[i] = 2 * std::sin(1.7f * static_cast<float>(i));
  for (size_t i = 0; i < ws.size(); ++i) ws[i] = std::cos(0.9f * static_cast<float>(i)) / 6;
  HostWeights weights;
  weights.add("w", {DType::F32, w.shape(), ws.data()});
  Executable e(make_plan(std::array{Result{"y", y}, Result{"alone", alone}}), make_backend("cpu"), weights);
  e.set("x", xs);
  e.run_all();
  const auto leaves = [&](const Expr& leaf) {
    const std::vector<float>& v = leaf.is<nodes::Param>() ? ws : xs;
    return std::vector<double>(v.begin(), v.end());
  };
  EXPECT_TRUE(close_to_largest(e.get("y"), Oracle(leaves).eval(y), 1e-5));
  EXPECT_TRUE(close_to_largest(e.get("alone"), Oracle(leaves).eval(alone), 1e-6));
}

}  // namespace
}  // namespace tenon
