// Recomputing values of the forward pass within a budget of bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <utility>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/vjp.h"
#include "tenon/nn/loss.h"
#include "tenon/oracle/oracle.h"
#include "tenon/train/gradients.h"
#include "tenon/train/rematerialise.h"

namespace tenon {
namespace {

// A chain of layers with gradients that read each layer's activations.
struct Chain {
  Graph g;
  std::vector<Result> results;
  Expr forward;
  explicit Chain(int layers, int64_t rows = 64) {
    Expr x = input(g, "x", DType::F32, {rows, 32});
    std::vector<Expr> weights;
    for (int i = 0; i < layers; ++i) {
      weights.push_back(param(g, "w" + std::to_string(i), DType::F32, {32, 32}));
      x = silu(linear(x, weights.back()));
    }
    forward = x;
    const std::vector<Expr> grads = gradients(x, input(g, "seed", DType::F32, x.shape()), weights);
    for (size_t i = 0; i < grads.size(); ++i) results.push_back({"d" + std::to_string(i), grads[i]});
  }
};

TEST(Rematerialise, KeepsToTheBudget) {
  Chain chain(16);
  const int64_t whole = make_plan(chain.results).arena_bytes, activation = 64 * 32 * 4;
  EXPECT_GE(whole, 16 * activation);
  const auto same = rematerialise(chain.results, std::array{chain.forward}, whole);
  for (size_t i = 0; i < same.size(); ++i) EXPECT_EQ(same[i].value, chain.results[i].value);
  for (const int64_t budget : {whole * 9 / 10, whole * 3 / 4}) {
    const auto less = rematerialise(chain.results, std::array{chain.forward}, budget);
    EXPECT_LE(make_plan(less).arena_bytes, budget);
  }
  try {
    rematerialise(chain.results, std::array{chain.forward}, 1000);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Memory);
    EXPECT_THAT(e.what(), testing::HasSubstr("more than 1000 (raise --max-memory to 1 MiB or more)"));
  }
}

TEST(Rematerialise, FindsTheSmallestArenaThatErrorsName) {
  Chain chain(16);
  const auto smallest = rematerialise(chain.results, std::array{chain.forward}, kSmallestArena);
  const int64_t bytes = make_plan(smallest).arena_bytes;
  EXPECT_LT(bytes, make_plan(chain.results).arena_bytes * 3 / 4);
  try {
    rematerialise(chain.results, std::array{chain.forward}, 2);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("needs an arena of " + std::to_string(bytes) + " bytes"));
  }
}

// Most of it is for the plans that are tried: what is recomputed is found in one walk, however many gradients read it.
TEST(Rematerialise, TakesAboutAsLongAsItsPlans) {
  Chain chain(800, 8);
  const auto seconds = [](const auto& work) {
    const std::clock_t begin = std::clock();  // of this process alone
    work();
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  double plan = 0;  // the slowest of three
  for (int i = 0; i < 3; ++i) plan = std::max(plan, seconds([&] { make_plan(chain.results); }));
  const double all = seconds([&] { rematerialise(chain.results, std::array{chain.forward}, kSmallestArena); });
  EXPECT_LT(all, 16 * plan);
}

TEST(Rematerialise, MeansTheSame) {
  Chain chain(8);
  const auto less =
      rematerialise(chain.results, std::array{chain.forward}, make_plan(chain.results).arena_bytes * 4 / 5);
  Oracle oracle([](const Expr& leaf) {
    std::vector<double> out;
    for (int64_t i = 0; i < leaf.shape().numel(); ++i) out.push_back(std::sin(static_cast<double>(i * i + 1)) / 4);
    return out;
  });
  bool changed = false;
  for (size_t i = 0; i < less.size(); ++i) {
    changed = changed || less[i].value != chain.results[i].value;
    EXPECT_EQ(oracle.eval(less[i].value), oracle.eval(chain.results[i].value)) << less[i].name;
  }
  EXPECT_TRUE(changed);
}

// What the loss reads at the end of the forward pass has its own stages: its parts run one after the other, however
// much is recomputed after them.
TEST(Rematerialise, ALossInPartsStaysInParts) {
  constexpr int64_t kRows = 64, kWidth = 32, kClasses = 5000, kChunk = 8;
  Graph g;
  Expr x = input(g, "x", DType::F32, {kRows, kWidth});
  std::vector<Expr> weights;
  for (int i = 0; i < 16; ++i) {
    weights.push_back(param(g, "w" + std::to_string(i), DType::F32, {kWidth, kWidth}));
    x = silu(linear(x, weights.back()));
  }
  const nn::CrossEntropy l = nn::cross_entropy(x, param(g, "head", DType::F32, {kClasses, kWidth}),
                                               input(g, "target", DType::I32, {kRows}), kChunk);
  const std::vector<Expr> grads = gradients(x, l.d_hidden, weights);
  std::vector<Result> results{{"loss", l.loss}, {"d_head", l.d_weight}};
  for (size_t i = 0; i < grads.size(); ++i) results.push_back({"d" + std::to_string(i), grads[i]});
  const int64_t budget = make_plan(results).arena_bytes - 4 * kRows * kWidth * 4;
  const Plan less = make_plan(rematerialise(results, std::array{x}, budget));
  EXPECT_LE(less.arena_bytes, budget);
}

// An update stays a result by itself, however small its state is.
TEST(Rematerialise, UpdatesOfSmallStates) {
  Chain chain(12);
  Graph& g = chain.g;
  const Expr small = state(g, "small", DType::F32, {2, 2}), at = input(g, "at", DType::I32, {1});
  chain.results.push_back({"small", update_rows(small, at, slice(slice(chain.forward, 0, 0, 1), 1, 0, 2))});
  const auto less = rematerialise(chain.results, std::array{chain.forward}, kSmallestArena);
  EXPECT_TRUE(is_update(less.back().value));
  EXPECT_LT(make_plan(less).arena_bytes, make_plan(chain.results).arena_bytes);
}

// Results are adjacent at the start of the arena, at the same offsets for any number of rows.
TEST(Arena, ResultsLieSideBySide) {
  std::vector<std::map<int64_t, int64_t>> of;  // bytes by offset
  for (const int64_t rows : {64, 96}) {
    const Plan plan = make_plan(Chain(8, rows).results);
    std::map<int64_t, int64_t>& results = of.emplace_back();
    for (const Buffer& b : plan.buffers)
      if (b.role == BufferRole::Output) results[b.offset] = b.bytes;
    int64_t end = 0;
    for (const auto& [offset, bytes] : results) EXPECT_EQ(std::exchange(end, offset + bytes), offset);
    EXPECT_EQ(results.size(), 8U);
  }
  EXPECT_EQ(of[0], of[1]);
}

// Attention blocks that all read one table, and a residual stream that each adds to: what is recomputed stays within
// the block whose gradient needs it.
TEST(Rematerialise, ADeepNetworkWithTables) {
  constexpr int64_t kRows = 256, kWidth = 32;
  const auto bytes = [](int blocks, double share) {
    Graph g;
    const Expr table = cos(input(g, "positions", DType::F32, {kRows, kWidth}) * 2.0);
    Expr x = input(g, "x", DType::F32, {kRows, kWidth});
    std::vector<Expr> weights;
    const auto layer = [&](const Expr& in, int64_t n) {
      weights.push_back(param(g, "w" + std::to_string(weights.size()), DType::F32, {n, in.shape()[-1]}));
      return linear(in, weights.back());
    };
    for (int b = 0; b < blocks; ++b) {
      const auto heads = [](const Expr& y) { return reshape(y, {1, 1, kRows, kWidth}); };
      const Expr q = layer(x, kWidth) * table, k = layer(x, kWidth) * table;
      x = x + layer(reshape(attention(heads(q), heads(k), heads(layer(x, kWidth)), 0.2), {kRows, kWidth}), kWidth);
      x = x + layer(silu(layer(x, 4 * kWidth)), kWidth);
    }
    const std::vector<Expr> grads = gradients(x, input(g, "seed", DType::F32, x.shape()), weights);
    std::vector<Result> results;
    for (size_t i = 0; i < grads.size(); ++i) results.push_back({"d" + std::to_string(i), grads[i]});
    const int64_t whole = make_plan(results).arena_bytes;
    const auto budget = static_cast<int64_t>(static_cast<double>(whole) * share);
    EXPECT_LE(make_plan(rematerialise(results, std::array{x}, budget)).arena_bytes, budget) << blocks;
    return whole;
  };
  EXPECT_GT(bytes(24, 0.25), 3 * bytes(4, 0.7) / 2);
}

// Where e4m3 weights are copied for each product that reads them transposed, a plan without a limit keeps the copies.
TEST(Rematerialise, CopiesOfWeightsAreNotKeptWithinALimit) {
  Graph g;
  const Expr a = param(g, "a", DType::F32, {32, 32}), w = param(g, "w", DType::F32, {48, 32});
  const Expr y = linear(linear(input(g, "x", DType::F32, {64, 32}), a), w);
  const Expr loss = reshape(mean(reshape(y * y, {64 * 48})), {});
  const train::Differentiated d{loss, {{"a", gradients(loss, {}, std::array{a})[0]}}, {}, {loss}};
  Target target;
  target.copies_e4m3 = true;
  const auto keeps = [&](int64_t limit) {
    const Plan plan = train::plan_gradients(
        d, target, {.precision = PrecisionPolicy::parse("operands, e4m3 rows: w"), .arena_bytes = limit});
    return std::ranges::any_of(plan.buffers, [](const Buffer& b) {
      return b.dtype == DType::E4M3 && b.rate == Rate::Constant && b.shape == Shape{32, 48};
    });
  };
  EXPECT_TRUE(keeps(0));
  EXPECT_FALSE(keeps(1 << 20));
  target.copies_e4m3 = false;
  EXPECT_FALSE(keeps(0));
}

}  // namespace
}  // namespace tenon
