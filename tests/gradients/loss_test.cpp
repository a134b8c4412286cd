// The loss over a large vocabulary: its gradients against finite differences, and the memory of its plan.
#include <gtest/gtest.h>

#include <random>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/nn/loss.h"
#include "tenon/oracle/oracle.h"
#include "tenon/plan/plan.h"
#include "tests/support/close.h"

namespace tenon {
namespace {

using LossValues = std::map<std::string, std::vector<double>>;

double loss_at(const Expr& loss, const LossValues& values) {
  return Oracle([&](const Expr& leaf) { return values.at(leaf->attrs.text); }).eval(loss)[0];
}

TEST(CrossEntropy, AgainstFiniteDifferences) {
  Graph g;
  const Expr hidden = input(g, "hidden", DType::F64, {2, 3, 4}), weight = param(g, "weight", DType::F64, {7, 4});
  const Expr target = input(g, "target", DType::I32, {2, 3});
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  LossValues values{{"hidden", std::vector<double>(24)}, {"weight", std::vector<double>(28)}};
  for (auto& [name, v] : values) std::ranges::generate(v, [&] { return normal(random); });
  values["target"] = {3, -1, 6, 0, 3, -100};
  for (const int64_t chunk : {1, 4, 6, 100}) {
    const nn::CrossEntropy c = nn::cross_entropy(hidden, weight, target, chunk);
    for (const auto& [name, gradient] : {std::pair{"hidden", c.d_hidden}, std::pair{"weight", c.d_weight}}) {
      const std::vector<double> got =
          Oracle([&](const Expr& leaf) { return values.at(leaf->attrs.text); }).eval(gradient);
      std::vector<double> want;
      for (double& x : values.at(name)) {
        const double kept = x, h = 1e-5;
        x = kept + h;
        const double up = loss_at(c.loss, values);
        x = kept - h;
        want.push_back((up - loss_at(c.loss, values)) / (2 * h));
        x = kept;
      }
      EXPECT_TRUE(close(got, want, Tolerance{1e-9, 1e-7})) << name << ", chunks of " << chunk;
    }
  }
  values["target"].assign(6, -1);
  EXPECT_EQ(loss_at(nn::cross_entropy(hidden, weight, target, 4).loss, values), 0);
}

// Rows reduced in blocks: of equal length, or of unequal length if the number of classes is prime.
TEST(CrossEntropy, OfManyClasses) {
  for (const int64_t classes : {16385, 40000, 40009}) {
    Graph g;
    const Expr hidden = input(g, "hidden", DType::F64, {2, 1}), weight = param(g, "weight", DType::F64, {classes, 1});
    const int64_t chunk = classes == 40000 ? 2 : 1;
    const nn::CrossEntropy c = nn::cross_entropy(hidden, weight, input(g, "target", DType::I32, {2}), chunk);
    for (const Expr& e : topological(std::array{c.loss, c.d_hidden, c.d_weight}))
      if (e->family() == Family::Reduce) {
        EXPECT_LE(e->in[0].shape()[-1], 16384);
      }
    std::mt19937 random(6);
    std::normal_distribution<double> normal;
    LossValues values{{"hidden", {1.5, -0.5}}, {"weight", {}}, {"target", {16384, 3}}};
    for (int64_t i = 0; i < classes; ++i) values["weight"].push_back(normal(random));
    double want = 0;
    for (const size_t row : {0u, 1u}) {
      double total = 0;
      for (const double w : values["weight"]) total += std::exp(values["hidden"][row] * w);
      const auto target = static_cast<size_t>(values["target"][row]);
      want += (std::log(total) - values["hidden"][row] * values["weight"][target]) / 2;
    }
    EXPECT_NEAR(loss_at(c.loss, values), want, 1e-9) << classes;
    EXPECT_EQ(c.d_weight.shape(), weight.shape());
  }
}

// 64 rows in chunks of 8: never more than two chunks of logits at a time, whatever is planned before.
TEST(CrossEntropy, HoldsNoMoreThanAChunkOrTwo) {
  Graph g;
  constexpr int64_t kRows = 64, kClasses = 5000, kWidth = 4, kChunk = 8;
  const Expr x = input(g, "x", DType::F32, {kRows, kWidth}), w = param(g, "w", DType::F32, {kWidth, kWidth});
  const Expr target = input(g, "target", DType::I32, {kRows});
  const nn::CrossEntropy c =
      nn::cross_entropy(silu(linear(x, w)), param(g, "head", DType::F32, {kClasses, kWidth}), target, kChunk);
  const Plan plan = make_plan(std::array{Result{"loss", c.loss}, Result{"dh", c.d_hidden}, Result{"dw", c.d_weight}});
  const int64_t chunk = kChunk * kClasses * 4, gradient = kClasses * kWidth * 4;
  for (const Buffer& b : plan.buffers) EXPECT_LE(b.bytes, std::max(chunk, gradient)) << b.name;
  EXPECT_LE(plan.arena_bytes, 2 * chunk + 3 * gradient + 16384) << print_plan(plan);
}

// The same if only log-probabilities are wanted, as from a reference model.
TEST(TokenLoss, HoldsNoMoreThanAChunkOfLogitsForLogProbabilities) {
  Graph g;
  constexpr int64_t kRows = 64, kClasses = 5000, kWidth = 4, kChunk = 8;
  const Expr x = input(g, "x", DType::F32, {kRows, kWidth}), head = param(g, "head", DType::F32, {kClasses, kWidth});
  const auto terms = [](const Expr& nll, int64_t, int64_t) -> nn::TokenTerm { return {nll, nll}; };
  const nn::TokenLoss l = nn::token_loss(x, head, input(g, "target", DType::I32, {kRows}), terms, kChunk);
  EXPECT_LE(make_plan(std::array{Result{"nll", l.nll}}).arena_bytes, 2 * kChunk * kClasses * 4 + 16384);
}

// Statistics of a block leave with one launch, and the other launch that reduces logits looks up the targets' blocks.
TEST(CrossEntropy, ReadsItsLogitsOnce) {
  Graph g;
  constexpr int64_t kRows = 8, kClasses = 40000;
  const nn::CrossEntropy c =
      nn::cross_entropy(input(g, "x", DType::F32, {kRows, 4}), param(g, "head", DType::F32, {kClasses, 4}),
                        input(g, "target", DType::I32, {kRows}), kRows);
  const Plan plan = make_plan(std::array{Result{"loss", c.loss}, Result{"dh", c.d_hidden}, Result{"dw", c.d_weight}});
  int whole = 0, looked_up = 0;
  for (const Launch& l : plan.phase(Rate::Step)->launches) {
    std::vector<Expr> values;
    for (const Output& o : l.outputs) values.push_back(o.value);
    const std::vector<Expr> all = topological(values);
    const auto is_logits = [&](const Expr& e) { return is_memory_leaf(e) && e.shape() == Shape{kRows, kClasses}; };
    if (l.skeleton != "rows" || std::ranges::none_of(all, is_logits)) continue;
    ++(std::ranges::any_of(all, [](const Expr& e) { return e.is<nodes::Gather>(); }) ? looked_up : whole);
  }
  EXPECT_EQ(whole, 1) << print_plan(plan);
  EXPECT_EQ(looked_up, 1) << print_plan(plan);
}

TEST(CrossEntropy, RefusesWhatDoesNotFit) {
  Graph g;
  const Expr hidden = input(g, "hidden", DType::F32, {3, 4}), weight = param(g, "weight", DType::F32, {7, 4});
  const Expr target = input(g, "target", DType::I32, {3});
  EXPECT_THROW(nn::cross_entropy(hidden, param(g, "w5", DType::F32, {7, 5}), target, 2), Error);
  EXPECT_THROW(nn::cross_entropy(hidden, weight, input(g, "t4", DType::I32, {4}), 2), Error);
  EXPECT_THROW(nn::cross_entropy(hidden, weight, input(g, "tf", DType::F32, {3}), 2), Error);
  EXPECT_THROW(nn::cross_entropy(hidden, weight, target, 0), Error);
}

}  // namespace
}  // namespace tenon
